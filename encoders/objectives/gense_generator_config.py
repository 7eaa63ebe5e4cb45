"""Configuration keys of GenSE's generator. This module does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.model_configs import OptimizerConfig, ScheduleName, T5Optimizer, TrainableConfig


@dataclass(frozen=True, kw_only=True)
class GenSEGeneratorConfig(TrainableConfig):
    """Configuration of GenSE's generator and discriminator (Chen et al. 2022): one T5 with both tasks.

    Example:
        >>> from contrastive_encoders import GenSEGeneratorConfig
        >>> GenSEGeneratorConfig().perplexity
        'corpus'
    """

    target: str = "contrastive_encoders.encoders.objectives.gense_generator.GenSEGenerator"

    optimizer: T5Optimizer = new_default(OptimizerConfig, "optimizer", "adafactor")
    lr: float = new_default(OptimizerConfig, "lr", 5.0e-5)
    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "linear_constant")
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)

    prompts: Mapping[str, Any] = config_field(
        inherits_from="prompts", meaning="templates of the prompts for generation and discrimination"
    )
    prompt_assembly: Literal["pieces", "string"] = config_field(
        inherits_from="prompt_assembly",
        meaning="how prompts and sentences are tokenized; pieces: each separately, as published; string: joined into "
        "one string",
    )
    perplexity: Literal["corpus", "mean_of_batches"] = config_field(
        "corpus",
        "how the perplexity of held-out texts is averaged; corpus: over all tokens; mean_of_batches: from the mean "
        "losses of batches of eval_batch_size texts, as published",
    )
    eval_batch_size: int = config_field(64, "number of held-out texts per batch", ge=1)
    answer_weight: int = config_field(
        1, "weight of the answer tokens in the loss; 8 is recommended for a backbone with random weights", ge=1
    )


MODELS = {"gense_generator": GenSEGeneratorConfig}
