"""Contrastive training on pairs and triplets, in which each text must find its partner among the other texts of the
batch.

With one direction, it is multiple-negatives ranking (Henderson et al., 2017), with hard negatives if the data has a
third column. The other directions are explained in `losses.directions`.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from contrastive_encoders.core import InputError, Ragged, TripletBatch
from contrastive_encoders.encoders.contrastive import HardNegativesObjective
from contrastive_encoders.encoders.objectives.pairs_config import PairsConfig
from contrastive_encoders.losses.contrastive import ContrastiveOutput
from contrastive_encoders.losses.directions import check_directions, contrast_in_directions


class Pairs(HardNegativesObjective):
    """Contrastive objective for pairs and triplets, with in-batch negatives.

    ``directions`` and ``partition_mode`` are explained in `losses.directions`, and the weights of hard negatives in
    `losses.contrastive.info_nce`.
    """

    objective = "pairs"
    consumes = TripletBatch

    settings: PairsConfig

    def __init__(self, settings: PairsConfig) -> None:
        try:
            check_directions(settings.directions, settings.partition_mode)
        except ValueError as error:
            raise InputError(f"model.{error}", key=f"model.{str(error).partition('=')[0]}") from error
        super().__init__(settings)

    def views(self, batch: TripletBatch) -> list[Ragged]:
        """Return the anchors, the positives, and the hard negatives if the batch has any."""
        return self.with_negatives([batch.anchors, batch.positives], batch.negatives)

    def loss(self, vectors: Sequence[Tensor], batch: TripletBatch, **known: Any) -> ContrastiveOutput:
        return contrast_in_directions(
            *vectors,
            directions=self.settings.directions,
            partition_mode=self.settings.partition_mode,
            **{**self.loss_keys(batch), **known},
        )
