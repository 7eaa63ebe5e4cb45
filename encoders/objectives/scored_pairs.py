"""CoSENT (Huang et al., 2024) and AnglE (Li and Li, ACL 2024): ranking losses on scored pairs."""

from collections.abc import Sequence

from torch import Tensor

from contrastive_encoders.core import Ragged, ScoredPairBatch
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives.scored_pairs_config import AnglEConfig, CoSENTConfig
from contrastive_encoders.losses.angle import angle
from contrastive_encoders.losses.cosent import cosent


class CoSENT(Objective):
    """Objective with the loss `losses.cosent`, computed over the pairs of all ranks."""

    objective = "cosent"
    consumes = ScoredPairBatch
    needs = "pairs of different scores whose two texts differ"
    remedy = "Add pairs with other scores."

    settings: CoSENTConfig

    def views(self, batch: ScoredPairBatch) -> list[Ragged]:
        return [batch.left, batch.right]

    def can_learn(self, batch: ScoredPairBatch, num_negatives: Tensor | None) -> bool:
        return len(batch.scores.unique()) > 1 and not self.all_equal(batch.left, batch.right)

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Tensor:
        left_BD, right_BD = vectors
        return cosent(left_BD, right_BD, batch.scores, temperature=self.settings.temperature)


class AnglE(CoSENT):
    """Objective with the loss `losses.angle`, computed over the pairs of all ranks."""

    objective = "angle"
    settings: AnglEConfig

    def loss(self, vectors: Sequence[Tensor], batch: ScoredPairBatch) -> Tensor:
        left_BD, right_BD = vectors
        return angle(left_BD, right_BD, batch.scores, temperature=self.settings.temperature)
