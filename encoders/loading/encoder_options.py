"""Configuration keys that replace settings of an encoder when it is loaded. This module does not import torch."""

from dataclasses import dataclass
from typing import Any, Literal

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.pooling import POOLERS

POOLING = f"pooling of token embeddings, one of {', '.join(POOLERS)}"
# Arguments of `load_encoder`
OPTIONS = ("pooling", "prompt", "prompt_suffix", "max_length", "attention", "truncate", "normalize", "precision")


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Configuration keys of all commands that load an encoder."""

    pooling: str | None = config_field(None, f"{POOLING}; null: the encoder's pooling, or mean if it has none")
    prompt: str | None = config_field(None, "text that is prepended to every input; null: the encoder's prompts")
    max_length: int | None = config_field(
        None, "maximum length of a text in tokens; null: the encoder's maximum length", ge=1
    )
    truncate: int | None = config_field(
        None,
        "number of leading dimensions of each embedding to keep, such as 256, for encoders trained with "
        "model.matryoshka; null: all dimensions",
    )

    @property
    def options(self) -> dict[str, Any]:
        """Return the keys as arguments of `load_encoder`."""
        return {name: getattr(self, name) for name in OPTIONS if hasattr(self, name)}


@dataclass(frozen=True, kw_only=True)
class NormalizationOptions(EncoderOptions):
    """Configuration keys of commands that also replace the normalization."""

    normalize: bool | None = config_field(
        None,
        "whether to L2-normalize embeddings, which happens after they are truncated if `truncate` is set; null: the "
        "encoder's setting",
    )


@dataclass(frozen=True, kw_only=True)
class ComputingOptions(EncoderOptions):
    """Configuration keys of commands that compute embeddings."""

    pooling: str | None = config_field(
        None,
        f"{POOLING}, or for word vectors also mean_lower_fallback; null: the encoder's pooling, or mean if it has none",
    )
    precision: Literal["fp32", "bf16", "int8"] = config_field(
        "fp32",
        "precision of the encoder's weights and hidden states; int8: linear layers compute with 8-bit integers in ONNX "
        "Runtime, on a CPU (extra onnx)",
    )
    device: str = config_field("auto", "device that computes the embeddings: auto, cpu, cuda, or cuda:1")
