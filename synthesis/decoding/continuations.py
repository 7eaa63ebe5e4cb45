"""What is asked of the decoding, and what comes out."""

from dataclasses import dataclass
from typing import NamedTuple

Text = str | tuple[int, ...]  # a text, or the ids of its tokens


class Prompt(NamedTuple):
    """One text to continue several times."""

    key: tuple[int | str, ...]  # identity for the random numbers, e.g. (hash of the input, label)
    text: Text  # ends where the sentence begins, in an opening quotation mark; an encoder's input has no such end
    counters: tuple[Text, ...] = ()  # prompts whose likely tokens are avoided
    decay: float = 100.0  # lambda of self-debiasing
    epsilon: float = 0.01  # its floor
    samples: range = range(1)  # which samples to draw; the same number gives the same text in every run


class Sampled(NamedTuple):
    """One continuation."""

    prompt: Prompt
    sample: int
    text: str  # before the stop string, blanks kept
    closed: bool  # the stop string came; False: cut after max_new_tokens, at the context's end, or by EOS. Without a
    # stop string: EOS came
    tokens: int  # drawn, the closing one included
    rejected: str = ""  # why nothing was drawn: the prompt leaves no room in the model's context


class Decoding(NamedTuple):
    """How tokens are drawn, and how many rows share a forward pass (which changes no text)."""

    max_new_tokens: int = 40
    top_p: float | None = 0.9  # None, 0 and 1: off
    top_k: int | None = 5  # None and 0: off
    temperature: float = 1.0
    ban_eos: bool = True
    stop: str = '"'  # empty: only EOS ends a text
    abandon: str = ""  # where this comes before the stop string the sample is of no use: it ends unclosed, and keeps it
    seed: int = 42
    rows: int | None = None  # at most so many rows (samples and their counter rows) per step; None: by the device
    token_budget: int = 32_768  # and at most so many columns of the key-value cache over all rows


@dataclass
class Statistics:
    """What the decoding cost so far."""

    prompts: int = 0
    samples: int = 0
    tokens: int = 0  # drawn for samples
    steps: int = 0  # forward passes after the prompts
    row_steps: int = 0  # rows in those passes
    wasted_row_steps: int = 0  # of them, rows whose sample was finished already
    prompt_tokens: int = 0  # in the prompts' passes, padding not counted
    padded_prompt_tokens: int = 0  # padding only
