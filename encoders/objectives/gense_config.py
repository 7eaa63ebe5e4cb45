"""Configuration keys of GenSE. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.model_configs import HardNegativesConfig, OptimizerConfig, ScheduleName, T5Optimizer


@dataclass(frozen=True, kw_only=True)
class GenSEConfig(HardNegativesConfig):
    """Configuration of GenSE's encoder (Chen et al. 2022): a prompted T5 that learns triplets in stages.

    Example:
        >>> from contrastive_encoders import GenSEConfig
        >>> GenSEConfig().optimizer
        'adafactor'
    """

    target: str = "contrastive_encoders.encoders.objectives.gense.GenSE"
    summary: ClassVar[str] = "GenSE (Chen et al., EMNLP 2022): contrastive learning on triplets, with T5."

    optimizer: T5Optimizer = new_default(OptimizerConfig, "optimizer", "adafactor")
    lr: float = new_default(OptimizerConfig, "lr", 5.0e-5)
    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "linear_constant")
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)

    prompt_suffix: str | None = config_field(
        "auto",
        "prompt that is appended to every text; auto: the prompt of the backbone if it is a sentence encoder, else "
        "default_prompt; null: no prompt",
    )
    default_prompt: str | None = config_field(
        inherits_from="prompts.embedding",
        meaning="prompt that is used if prompt_suffix=auto and the backbone is a plain transformer",
    )
    truncation: Literal["keep_prompt", "official"] = config_field(
        "keep_prompt",
        "how texts that are too long are truncated; keep_prompt: only the text is truncated; official: "
        "in training, text and prompt are truncated as one string, so that long texts lose the prompt, as in "
        "the published code",
    )


MODELS = {"gense": GenSEConfig}
