"""SBERT on NLI: softmax classification of [u, v, |u - v|] of a pair (Reimers and Gurevych, 2019, section 3).

The classifier is discarded after training.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contrastive_encoders.core import NLIBatch, Ragged
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives.sbert_nli_config import SBERTConfig
from contrastive_encoders.losses.pairs import Classified, pair_softmax

CLASSES = 3


class SBERT_NLI(Objective):
    """Objective with the mean cross-entropy over the three NLI classes as its loss. ``seed`` initializes the
    classifier.

    ``classifier_lr`` is the learning rate of the classifier (default: ``lr``, as published). If an encoder with random
    weights is trained, the classifier must learn much faster, or the encoder adapts to its random weights.
    """

    objective = "sbert_nli"
    consumes = NLIBatch

    settings: SBERTConfig

    def __init__(self, settings: SBERTConfig) -> None:
        super().__init__(settings)
        self.classifier = nn.Linear(3 * self.encoder.width, CLASSES)
        bound = 1 / math.sqrt(self.classifier.in_features)  # torch's initialization, but from a seed
        drawn = torch.Generator().manual_seed(settings.seed)
        for weight in self.classifier.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=drawn)

    def special_learning_rates(self) -> dict[nn.Parameter, float]:
        rate = self.settings.classifier_lr
        return {} if rate is None else dict.fromkeys(self.classifier.parameters(), rate)

    def views(self, batch: NLIBatch) -> list[Ragged]:
        return [batch.premises, batch.hypotheses]

    def loss(self, vectors: Sequence[Tensor], batch: NLIBatch) -> Classified:
        """Return the classification loss. Matryoshka prefixes use slices of one shared classifier (MRL-E)."""
        left_BD, right_BD = vectors
        weight = self.classifier.weight.unflatten(1, (3, -1))[..., : left_BD.shape[1]].flatten(1)
        return pair_softmax(left_BD, right_BD, batch.labels, weight, self.classifier.bias)
