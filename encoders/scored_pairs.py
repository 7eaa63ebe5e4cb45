"""CoSENT (Huang et al., 2024) and AnglE (Li and Li, ACL 2024): the pair with the higher score is to be the nearer."""

from collections.abc import Sequence

from torch import Tensor

from contracts import Ragged, ScoredPairBatch
from encoders.objective import Objective
from encoders.settings import AnglEModel, CoSENTModel
from losses.angle import angle
from losses.cosent import cosent


class CoSENT(Objective):
    """Loss = `losses.cosent`, over the pairs of the whole batch."""

    objective = "cosent"
    consumes = ScoredPairBatch

    settings: CoSENTModel

    def views(self, batch: ScoredPairBatch) -> list[Ragged]:
        return [batch.left, batch.right]

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Tensor:
        left_BD, right_BD = vectors
        return cosent(left_BD, right_BD, batch.scores, temperature=self.settings.temperature)


class AnglE(CoSENT):
    """Loss = `losses.angle`."""

    objective = "angle"
    settings: AnglEModel

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Tensor:
        left_BD, right_BD = vectors
        return angle(left_BD, right_BD, batch.scores, temperature=self.settings.temperature)
