"""Configuration keys of TSDAE. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.model_configs import EncoderConfig, OptimizerConfig, ScheduleName


@dataclass(frozen=True, kw_only=True)
class TSDAEConfig(EncoderConfig):
    """Configuration of TSDAE (Wang et al. 2021): a denoising autoencoder.

    Example:
        >>> from contrastive_encoders import TSDAEConfig
        >>> TSDAEConfig().lr_schedule
        'constant'
    """

    target: str = "contrastive_encoders.encoders.objectives.tsdae.TSDAE"
    summary: ClassVar[str] = (
        "TSDAE (Wang, Reimers and Gurevych, Findings of EMNLP 2021): a text is written again from the vector "
        "of what is left of it when most words are deleted. No labels."
    )

    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "constant")

    seed: int = config_field(inherits_from="seed", meaning="seed of the initial cross-attention weights")


MODELS = {"tsdae": TSDAEConfig}
