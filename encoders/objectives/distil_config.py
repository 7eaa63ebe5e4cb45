"""Configuration keys for distillation of a teacher's embeddings. This module does not import torch."""

from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.model_configs import (
    DISTANCE,
    TEACHER,
    EmbeddingConfig,
    EncoderConfig,
    OptimizerConfig,
)


@dataclass(frozen=True, kw_only=True)
class DistilConfig(EmbeddingConfig):
    """Configuration of an encoder that learns the embeddings of a teacher.

    Example:
        >>> from contrastive_encoders import DistilConfig
        >>> DistilConfig(teacher="sentence-transformers/all-MiniLM-L6-v2").distance
        'cosine'
    """

    target: str = "contrastive_encoders.encoders.objectives.distil.Distil"

    lr: float = new_default(OptimizerConfig, "lr", 1.0e-4)
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)
    dropout: float | None = new_default(EncoderConfig, "dropout", 0.0)

    teacher: str = config_field(meaning=TEACHER)
    distance: Literal["cosine", "mse"] = config_field("cosine", DISTANCE)


MODELS = {"distil": DistilConfig}
