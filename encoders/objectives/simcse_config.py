"""Configuration keys of SimCSE. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import HardNegativesConfig


@dataclass(frozen=True, kw_only=True)
class SimCSEConfig(HardNegativesConfig):
    """Configuration of SimCSE (Gao et al. 2021): two dropout masks, or pairs and triplets, with NT-Xent (eq. 1 and 5).

    Example:
        >>> from contrastive_encoders import SimCSEConfig
        >>> SimCSEConfig(lr=2e-5).temperature
        0.05
    """

    target: str = "contrastive_encoders.encoders.objectives.simcse.SimCSE"
    summary: ClassVar[str] = (
        "SimCSE (Gao et al., EMNLP 2021): a sentence is near itself under other dropout, or near its positive "
        "where the data has one."
    )

    mlp: bool = config_field(True, "whether to use a linear layer and tanh between pooling and loss")
    mlp_only_train: bool | None = config_field(
        True,
        "whether the MLP is excluded from the encoder; false: it is included, as in supervised SimCSE (replaces "
        "a layer that the backbone has after its pooling); null: included, unless the backbone is already a sentence "
        "encoder",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the MLP")


MODELS = {"simcse": SimCSEConfig}
