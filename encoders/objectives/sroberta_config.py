"""Configuration keys of S-RoBERTa. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.encoders.model_configs import SentencePairConfig


@dataclass(frozen=True, kw_only=True)
class SRoBERTaConfig(SentencePairConfig):
    """Configuration of S-RoBERTa (Schick and Schütze 2021): regression of the cosine on the scores of DINO's pairs.

    Example:
        >>> from contrastive_encoders import SRoBERTaConfig
        >>> SRoBERTaConfig(lr=1e-5).lr
        1e-05
    """

    target: str = "contrastive_encoders.encoders.objectives.sroberta.SRoBERTa"
    summary: ClassVar[str] = (
        "Cosine regression on scored sentence pairs, as S-RoBERTa on DINO's (Schick and Schütze, EMNLP 2021)."
    )


MODELS = {"sroberta": SRoBERTaConfig}
