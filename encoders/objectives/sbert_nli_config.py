"""Configuration keys of SBERT on NLI. This module does not import torch."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import SentencePairConfig


@dataclass(frozen=True, kw_only=True)
class SBERTConfig(SentencePairConfig):
    """Configuration of SBERT (Reimers and Gurevych 2019): a classifier of NLI pairs on ``[u; v; |u - v|]``.

    Example:
        >>> from contrastive_encoders import SBERTConfig
        >>> SBERTConfig(classifier_lr=1e-3).classifier_lr
        0.001
    """

    target: str = "contrastive_encoders.encoders.objectives.sbert_nli.SBERT_NLI"
    summary: ClassVar[str] = "A softmax over the relation of premise and hypothesis (Reimers and Gurevych, EMNLP 2019)."

    classifier_lr: float | None = config_field(
        None,
        "learning rate of the classifier, e.g. 0.01 for a backbone with random weights; null: same as lr, as published",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the classifier")


MODELS = {"sbert_nli": SBERTConfig}
