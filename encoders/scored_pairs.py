"""CoSENT (Huang et al., 2024) and AnglE (Li and Li, ACL 2024): the pair with the higher score is to be the nearer."""

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from contracts import Ragged, ScoredPairBatch
from encoders.objective import Objective
from encoders.settings import VectorSettings
from encoders.trained_module import check_temperature
from losses.angle import angle
from losses.cosent import cosent


class CoSENT(Objective):
    """Loss = `losses.cosent`, over the pairs of the whole batch."""

    objective = "cosent"
    consumes = ScoredPairBatch

    def __init__(self, *, temperature: float, **settings: Unpack[VectorSettings]) -> None:
        check_temperature(temperature)
        super().__init__(**settings)

    def views(self, batch: ScoredPairBatch) -> list[Ragged]:
        return [batch.left, batch.right]

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Tensor:
        left, right = vectors
        return cosent(left, right, batch.scores, temperature=self.hparams.temperature)


class AnglE(CoSENT):
    """Loss = `losses.angle`."""

    objective = "angle"

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Tensor:
        left, right = vectors
        return angle(left, right, batch.scores, temperature=self.hparams.temperature)
