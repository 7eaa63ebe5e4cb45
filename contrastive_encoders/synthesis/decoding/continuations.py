"""Requests to a decoder, and their results."""

from dataclasses import dataclass
from typing import NamedTuple

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.synthesis.checked_settings import Bounded

PromptText = str | tuple[int, ...]  # a text, or the ids of its tokens


class Prompt(NamedTuple):
    """One text to continue several times."""

    key: tuple[int | str, ...]  # identity for the random numbers, e.g. (hash of the input, label)
    text: PromptText  # ends where the sentence begins, in an opening quotation mark; an encoder's input has no such end
    counters: tuple[PromptText, ...] = ()  # prompts whose likely tokens are avoided
    decay: float = 100.0  # lambda of self-debiasing
    epsilon: float = 0.01  # its floor
    samples: range = range(1)  # which samples to draw; the same number gives the same text in every run

    @property
    def texts(self) -> tuple[PromptText, ...]:
        """Return the prompt and its counter prompts."""
        return (self.text, *self.counters)


class Continuation(NamedTuple):
    """A text that was sampled behind a prompt."""

    prompt: Prompt
    sample: int
    text: str  # before the stop string, blanks kept
    closed: bool  # the stop string came; False: cut after max_new_tokens, at the context's end, or by EOS. Without a
    # stop string: EOS came
    tokens: int  # drawn, the closing one included
    rejected: str = ""  # why nothing was drawn: the prompt leaves no room in the model's context


def asked_and_begun(text: str) -> tuple[str, str]:
    """A prompt as a chat: what the user says, and how the answer begins, which is the last line. A prompt of one line
    is all the user's."""
    question, newline, begun = text.rpartition("\n")
    return (question, begun) if newline else (text, "")


MOST_NEW_TOKENS = 1 << 16  # also of models that set no limit: a sample has a number drawn for each


@dataclass(frozen=True, kw_only=True)
class Decoding(Bounded):
    """How tokens are drawn, and how many rows share a forward pass (which changes no text)."""

    max_new_tokens: int = config_field(ge=1, le=MOST_NEW_TOKENS)
    top_p: float | None = config_field(gt=0, le=1)  # None and 1: off
    top_k: int | None = config_field(ge=0)  # None and 0: off
    temperature: float = config_field(gt=0)
    ban_eos: bool = False
    stop: str = ""  # what ends a text; empty: only EOS does
    abandon: str = ""  # where this comes before the stop string the sample is of no use: it ends unclosed, and keeps it
    seed: int
    # At most so many rows (samples and their counter rows) per step; None: by the device
    rows: int | None = config_field(ge=1)
    token_budget: int = config_field(ge=1)  # and at most so many columns of the key-value cache over all rows


@dataclass
class Statistics:
    """Counts of the work that the decoding has done so far."""

    prompts: int = 0
    samples: int = 0
    tokens: int = 0  # drawn for samples
    steps: int = 0  # forward passes after the prompts
    row_steps: int = 0  # rows in those passes
    wasted_row_steps: int = 0  # of them, rows whose sample was finished already
    prompt_tokens: int = 0  # in the prompts' passes, padding not counted
    padded_prompt_tokens: int = 0  # padding only
