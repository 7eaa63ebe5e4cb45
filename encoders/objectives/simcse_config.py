"""Configuration keys of SimCSE. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import HardNegativesConfig


@dataclass(frozen=True, kw_only=True)
class SimCSEConfig(HardNegativesConfig):
    """Configuration of SimCSE (Gao et al. 2021): NT-Xent on sentences with two dropout masks (eq. 1), or on pairs and
    triplets (eq. 5).

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

    mlp: bool = config_field(True, "whether to use an MLP, a linear layer with tanh, between pooling and loss")
    mlp_only_train: bool | None = config_field(
        True,
        "whether the MLP is only used in training; false: it is part of the encoder, as in supervised SimCSE (if "
        "the backbone already has a layer after its pooling, this layer is used instead); null: it is part of the "
        "encoder if the backbone is a plain transformer, and is not used at all if the backbone is a sentence "
        "encoder",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the MLP")


MODELS = {"simcse": SimCSEConfig}
