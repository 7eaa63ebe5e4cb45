"""S-RoBERTa of DINO: regression of the cosine similarity of a pair on its score (Schick and Schütze, 2021)."""

from collections.abc import Sequence

from torch import Tensor

from contrastive_encoders.core import Ragged, ScoredPairBatch
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives.sroberta_config import SRoBERTaConfig
from contrastive_encoders.losses.pairs import Regression, cosine_regression


class SRoBERTa(Objective):
    """Objective with the mean squared difference between cosine and score as its loss.

    Despite the name, any backbone can be trained.
    """

    objective = "sroberta"
    consumes = ScoredPairBatch
    needs = "pairs whose two texts differ"
    remedy = "Add pairs of different texts."
    settings: SRoBERTaConfig

    def views(self, batch: ScoredPairBatch) -> list[Ragged]:
        return [batch.left, batch.right]

    def can_learn(self, batch: ScoredPairBatch, num_negatives: Tensor | None) -> bool:
        return not self.all_equal(batch.left, batch.right)

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Regression:
        left_BD, right_BD = vectors
        return cosine_regression(left_BD, right_BD, batch.scores)

    def metrics(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> dict[str, Tensor]:
        return {"score": batch.scores.float().mean()}
