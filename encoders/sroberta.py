"""S-RoBERTa as DINO trains it: the cosine of two sentences is regressed on their score (Schick and Schütze, 2021)."""

from collections.abc import Sequence

from torch import Tensor

from contracts import Ragged, ScoredPairBatch
from encoders.objective import Objective
from encoders.settings import SRoBERTaModel
from losses.pairs import Regression, cosine_regression


class SRoBERTa(Objective):
    """Loss = mean squared difference of cosine and score; any backbone, whatever the name says."""

    objective = "sroberta"
    consumes = ScoredPairBatch
    settings: SRoBERTaModel

    def views(self, batch: ScoredPairBatch) -> list[Ragged]:
        return [batch.left, batch.right]

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Regression:
        left_BD, right_BD = vectors
        return cosine_regression(left_BD, right_BD, batch.scores)

    def metrics(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> dict[str, Tensor]:
        return {"score": batch.scores.float().mean()}
