"""Settings of what is trained. None of these imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from contracts.settings import key

T5Optimizer = Literal["adafactor", "adafactor_scaled", "adamw"]
ScheduleName = Literal[
    "slanted_triangular",
    "paper_literal",
    "official_code_bug",
    "linear",
    "linear_from_zero",
    "linear_constant",
    "constant",
]


@dataclass(frozen=True, kw_only=True)
class TinySizes:
    """The architecture of ``backbone=tiny``."""

    vocab_size: int = key(12_288, "entries of the vocabulary", least=1)
    hidden_size: int = key(256, "numbers of a state", least=1)
    layers: int = key(2, "of the encoder, and of a decoder", least=1)
    heads: int = key(4, "of attention", least=1)
    intermediate_size: int = key(1024, "between the two linear layers of a block", least=1)
    max_length: int = key(512, "tokens of a text, special tokens included", least=1)
    dropout: float = key(0.1, "of attention and states", least=0, most=1)
    lowercase: bool = key(True, "true: the tokenizer lower-cases texts")


class LoraKeys(TypedDict):
    """Keys under ``model.lora``."""

    rank: int | None
    alpha: float | None
    dropout: float
    targets: str | Sequence[str]
    stages: Literal["merge", "stack"]
    seed: int


class Settings(TypedDict):
    """Keys of everything that is trained: which weights, and how."""

    backbone: str
    token_budget: int | None  # padded tokens computed at once
    recompute: str
    lr: float
    weight_decay: float
    betas: Sequence[float]
    eps: float
    bias_correction: bool
    lr_schedule: ScheduleName
    cut_fraction: float  # of the steps: warm-up
    layer_decay: float | None  # rate of a layer over that of the one above it
    freeze: str | None  # embeddings, layers:N
    lora: LoraKeys
    frozen_weights: Literal["fp32", "bf16"]
    compile: bool | str  # the layers, by torch's compiler, or by another backend of it


class EncoderSettings(Settings):
    """Keys of an objective that trains an encoder."""

    pooling: str | None  # as the backbone has it
    normalize: bool | None  # vectors of length 1 wherever they leave the encoder; null: as the backbone's folder says
    append_end: bool | None
    attention: str | None  # causal, bidirectional
    dropout: float | None  # of the backbone in training; null: as its config says
    attn_implementation: str  # auto, unpadded, or one of transformers
    max_length: int | None  # tokens that `embed` reads, special tokens included; null: what the backbone can, up to 512


class VectorSettings(EncoderSettings):
    """Keys of an objective that compares vectors."""

    matryoshka: Sequence[int] | None  # sizes of prefixes that the loss is summed over
    matryoshka_weights: Sequence[float] | None  # null: 1 each


class ContrastSettings(VectorSettings):
    """Keys of an objective whose negatives are the other texts of the batch."""

    guide: str | None  # an encoder that says which of them are none
    guide_absolute_margin: float | None  # of a cosine; null: 0
    guide_relative_margin: float | None  # share of the pair's cosine
