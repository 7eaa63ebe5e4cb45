"""Requests to a decoder, and their results."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from contrastive_encoders.core.config_schema import NOT_A_KEY, config_field

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


def split_chat_prompt(text: str) -> tuple[str, str]:
    """A prompt as a chat: what the user says, and how the answer begins, which is the last line. A prompt of one line
    is all the user's."""
    question, newline, begun = text.rpartition("\n")
    return (question, begun) if newline else (text, "")


MAX_NEW_TOKENS = 1 << 16  # also of models that set no limit: a sample has a number drawn for each


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How tokens are drawn, and how many rows share a forward pass (which changes no text)."""

    max_new_tokens: int = config_field(40, "maximum length of a text in tokens", ge=1, le=MAX_NEW_TOKENS)
    top_p: float | None = config_field(0.9, "nucleus sampling; 1 or null: off", gt=0, le=1)
    top_k: int | None = config_field(
        None, "top-k sampling; 0: off; null: off, but 5 for second sentences of DINO", ge=0
    )
    temperature: float = config_field(1.0, "temperature of sampling", gt=0)
    ban_eos: bool = field(default=False, metadata=NOT_A_KEY)
    # What ends a text; empty: only EOS does
    stop: str = field(default="", metadata=NOT_A_KEY)
    # A sample in which this comes before the stop string is of no use: it ends unclosed, and keeps it
    abandon: str = field(default="", metadata=NOT_A_KEY)
    seed: int = config_field(
        42, "seed of the texts, which do not depend on batches, shards, or the number of processes"
    )
    rows: int | None = config_field(None, "samples and counter prompts per step; null: by the device", ge=1)
    token_budget: int = config_field(
        16384,
        "columns of the key-value cache over all rows; training's key of this name counts the tokens of a pass",
        ge=1,
    )

    def sampling(self) -> dict[str, Any]:
        """Return the keys that decide the texts."""
        return {name: getattr(self, name) for name in ("max_new_tokens", "top_p", "top_k", "temperature", "seed")}


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
