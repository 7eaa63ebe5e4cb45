"""Distillation of a teacher's scores: a teacher, such as a cross-encoder, scores each anchor with its positive and its
negatives.

The loss is MarginMSE (Hofstaetter et al., 2020), or KL over an anchor's own texts (Lin et al., 2020). MarginMSE
reproduces the margins of the scores, so that their scale matters: normalized embeddings cannot have a margin of 10.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from contrastive_encoders.core import Ragged, ScoredTripletBatch
from contrastive_encoders.encoders.attention import has_dropout
from contrastive_encoders.encoders.objective import Objective, negatives_unlike_positive
from contrastive_encoders.encoders.objectives.distil_scores_config import DistilScoresConfig
from contrastive_encoders.losses.distillation import kl_of_scores, margin_mse, similarity_scores


class DistilScores(Objective):
    """Objective with the loss `losses.distillation.margin_mse` or `losses.distillation.kl_of_scores`.

    The similarity is that of the encoder's final embeddings: if they are normalized, a dot product is a cosine. The
    teacher's scores are multiplied by ``teacher_scale``.
    """

    objective = "distil_scores"
    consumes = ScoredTripletBatch
    needs = "negatives that differ from their positive"
    remedy = "Replace the negatives that repeat their positive."

    settings: DistilScoresConfig

    def views(self, batch: ScoredTripletBatch) -> list[Ragged]:
        return [batch.anchors, batch.positives, batch.negatives]

    def count_negatives(self, batch: ScoredTripletBatch) -> Tensor:
        return negatives_unlike_positive(batch.positives, batch.negatives)

    def can_learn(self, batch: ScoredTripletBatch, num_negatives: Tensor | None) -> bool:
        return num_negatives is None or bool(num_negatives.any()) or has_dropout(self.encoder)

    def loss(self, vectors: Sequence[Tensor], batch: ScoredTripletBatch) -> Tensor:
        anchors_BW, positives_BW, negatives_NW = vectors
        others_BCW = torch.cat([positives_BW[:, None], negatives_NW.unflatten(0, (len(anchors_BW), -1))], dim=1)
        cosine = self.encoder.normalize or self.settings.similarity == "cosine"
        scores_BC = similarity_scores(anchors_BW, others_BCW, cosine=cosine)
        teacher_BC = batch.scores * self.settings.teacher_scale
        if self.settings.loss == "margin_mse":
            return margin_mse(scores_BC, teacher_BC)
        return kl_of_scores(scores_BC, teacher_BC, temperature=self.settings.temperature)
