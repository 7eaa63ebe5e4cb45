"""Distillation of a teacher's embeddings, which the batches contain.

The loss is the mean squared error (Reimers and Gurevych, EMNLP 2020) or the cosine distance (Kim et al., EmbedDistill,
2023).
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from contrastive_encoders.core import InputError, Ragged, SentenceBatch, TripletBatch
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives.distil_config import DistilConfig


class Distil(Objective):
    """Objective that learns a teacher's embeddings, through a projection to the teacher's width if the widths
    differ.
    """

    objective = "distil"
    consumes = (SentenceBatch, TripletBatch)

    settings: DistilConfig

    def views(self, batch: SentenceBatch | TripletBatch) -> list[Ragged]:
        """Return all texts of the batch."""
        if isinstance(batch, TripletBatch):
            return [one for one in (batch.anchors, batch.positives, batch.negatives) if one is not None]
        if batch.damaged is not None:
            raise InputError(
                key="data.deletion_ratio", expected="null, because model=distil encodes complete sentences"
            )
        return [batch.sentences]

    def loss(self, vectors: Sequence[Tensor], batch: Any) -> Tensor:
        assert self.teaching is not None
        return self.teaching(vectors, batch)
