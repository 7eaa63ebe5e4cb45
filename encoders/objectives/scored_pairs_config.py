"""Configuration keys of CoSENT and AnglE. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import SentencePairConfig


@dataclass(frozen=True, kw_only=True)
class CoSENTConfig(SentencePairConfig):
    """Configuration of CoSENT: a ranking loss on the cosines of scored pairs.

    Example:
        >>> from contrastive_encoders import CoSENTConfig
        >>> CoSENTConfig().temperature
        0.05
    """

    target: str = "contrastive_encoders.encoders.objectives.scored_pairs.CoSENT"
    summary: ClassVar[str] = "CoSENT (Huang et al., 2024): the scored pair with the higher score has the higher cosine."

    temperature: float = config_field(
        0.05, "temperature of the loss; differences of similarities are divided by it", gt=0
    )


@dataclass(frozen=True, kw_only=True)
class AnglEConfig(CoSENTConfig):
    """Configuration of AnglE (Li and Li, ACL 2024): CoSENT with a similarity based on angles in the complex plane.

    Example:
        >>> from contrastive_encoders import AnglEConfig
        >>> AnglEConfig(temperature=0.1).temperature
        0.1
    """

    target: str = "contrastive_encoders.encoders.objectives.scored_pairs.AnglE"
    summary: ClassVar[str] = "AnglE (Li and Li, ACL 2024): the scored pair with the higher score has the smaller angle."


MODELS = {"cosent": CoSENTConfig, "angle": AnglEConfig}
