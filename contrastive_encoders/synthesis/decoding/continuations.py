"""Data classes for decoding: prompts, sampling options, sampled continuations, and counts."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from contrastive_encoders.core.config_schema import NOT_A_KEY, config_field

PromptText = str | tuple[int, ...]  # a text, or its token ids


class Prompt(NamedTuple):
    """A prompt from which one or more samples are drawn."""

    key: tuple[int | str, ...]  # identity for the random numbers, e.g. (hash of the input, label)
    text: PromptText  # ends before the sentence, with an opening quotation mark; encoder inputs do not
    counters: tuple[PromptText, ...] = ()  # prompts whose likely tokens are avoided
    decay: float = 100.0  # lambda of self-debiasing
    epsilon: float = 0.01  # floor of self-debiasing
    samples: range = range(1)  # samples to draw; the same number gives the same text in every run

    @property
    def texts(self) -> tuple[PromptText, ...]:
        """Return the texts of the prompt and its counter prompts."""
        return (self.text, *self.counters)


class Continuation(NamedTuple):
    """A sampled continuation of a prompt."""

    prompt: Prompt
    sample: int
    text: str  # text before the stop string, with its blanks
    closed: bool  # True if the stop string occurred (without a stop string: EOS). False if truncated
    tokens: int  # number of drawn tokens, including the closing one
    rejected: str = ""  # why nothing was drawn: the prompt leaves no room in the model's context


def split_chat_prompt(text: str) -> tuple[str, str]:
    """Split a prompt for a chat model: its last line is the beginning of the answer, and the lines before it are the
    user's message.

    If the prompt is a single line, it is the user's message, and the answer has no given beginning.
    """
    question, newline, begun = text.rpartition("\n")
    return (question, begun) if newline else (text, "")


MAX_NEW_TOKENS = 1 << 16  # limit for models without one: a random number is drawn for each token of a sample


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Sampling options and batch sizes of decoding. Batch sizes do not change any text."""

    max_new_tokens: int = config_field(40, "maximum length of a generated text, in tokens", ge=1, le=MAX_NEW_TOKENS)
    top_p: float | None = config_field(
        0.9, "probability mass of nucleus (top-p) sampling; 1 or null: no top-p sampling", gt=0, le=1
    )
    top_k: int | None = config_field(
        None,
        "number of likeliest tokens from which top-k sampling draws; 0: no top-k sampling; null: 5 for the second "
        "sentences of DINO, otherwise no top-k sampling",
        ge=0,
    )
    temperature: float = config_field(1.0, "sampling temperature", gt=0)
    ban_eos: bool = field(default=False, metadata=NOT_A_KEY)
    # String that ends a text. If empty, only EOS ends it
    stop: str = field(default="", metadata=NOT_A_KEY)
    # A sample that contains this string before the stop string is unusable: it ends there unclosed and keeps the string
    abandon: str = field(default="", metadata=NOT_A_KEY)
    seed: int = config_field(
        42, "random seed; texts do not depend on the batch size, the shard size, or the number of processes"
    )
    decode_batch_size: int | None = config_field(
        None,
        "maximum number of sequences (samples and counter prompts) per decoding step; null: 128 on a CPU, else 256",
        ge=1,
    )
    kv_cache_tokens: int = config_field(
        16384,
        "maximum size of the key-value cache in tokens, including padding: the number of sequences in the batch times "
        "the length reserved for the longest one; a sample that alone exceeds this size is decoded in a batch of its "
        "own",
        ge=1,
    )

    def sampling(self) -> dict[str, Any]:
        """Return the options that determine the generated texts."""
        return {name: getattr(self, name) for name in ("max_new_tokens", "top_p", "top_k", "temperature", "seed")}


@dataclass
class Statistics:
    """Counts of prompts, samples, tokens, and forward passes during decoding."""

    prompts: int = 0
    samples: int = 0
    tokens: int = 0  # drawn for samples
    steps: int = 0  # forward passes after the prompts
    row_steps: int = 0  # rows in those passes
    wasted_row_steps: int = 0  # of these, rows whose sample was already finished
    prompt_tokens: int = 0  # in the passes over prompts, without padding
    padded_prompt_tokens: int = 0  # padding only
