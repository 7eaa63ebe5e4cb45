"""Configuration keys of pairs and triplets. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import HardNegativesConfig


@dataclass(frozen=True, kw_only=True)
class PairsConfig(HardNegativesConfig):
    """Configuration of contrastive training on pairs and triplets with in-batch negatives.

    Example:
        >>> from contrastive_encoders import PairsConfig
        >>> PairsConfig(directions=("query_to_doc", "doc_to_query")).partition_mode
        'joint'
    """

    target: str = "contrastive_encoders.encoders.objectives.pairs.Pairs"
    summary: ClassVar[str] = (
        "In-batch contrast of pairs (multiple-negatives ranking, Henderson et al., 2017): a text is near its "
        "partner, and far from the other texts of a batch."
    )

    directions: Sequence[str] = config_field(
        ("query_to_doc",),
        "similarities in the batch that contribute candidates to the softmax, as a list: query_to_doc (required), "
        "doc_to_query, query_to_query, doc_to_doc",
    )
    partition_mode: str = config_field(
        "joint",
        "normalization of the loss; joint: one softmax over the candidates of all directions; per_direction: separate "
        "softmaxes for query_to_doc and doc_to_query (the symmetric loss)",
    )


MODELS = {"pairs": PairsConfig}
