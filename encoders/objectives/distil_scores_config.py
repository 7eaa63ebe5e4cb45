"""Configuration keys for distillation of a teacher's scores. This module does not import torch."""

from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.model_configs import EmbeddingConfig, OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class DistilScoresConfig(EmbeddingConfig):
    """Configuration of an encoder that learns the scores of a teacher for an anchor's positive and negatives.

    Example:
        >>> from contrastive_encoders import DistilScoresConfig
        >>> DistilScoresConfig().loss
        'margin_mse'
    """

    target: str = "contrastive_encoders.encoders.objectives.distil_scores.DistilScores"

    lr: float = new_default(OptimizerConfig, "lr", 2.0e-5)
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)

    loss: Literal["margin_mse", "kl"] = config_field(
        "margin_mse",
        "loss function; margin_mse: the encoder learns the teacher's margin between the positive and each "
        "negative; kl: it learns the teacher's distribution over the positive and the negatives",
    )
    similarity: Literal["dot", "cosine"] = config_field(
        "dot",
        "similarity of the encoder's embeddings, which is trained to match the teacher's scores; scores outside -1 to "
        "1 can only be matched by dot with normalize=false",
    )
    temperature: float = config_field(1.0, "temperature for loss=kl; the scores of both models are divided by it", gt=0)
    teacher_scale: float = config_field(1.0, "factor by which the teacher's scores are multiplied", gt=0)


MODELS = {"distil_scores": DistilScoresConfig}
