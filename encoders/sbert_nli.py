"""SBERT on NLI: a softmax over u, v and |u - v| tells entailment, neutral and contradiction apart.

Reimers and Gurevych, 2019, section 3. The classifier is thrown away after training.
"""

import math
from functools import partial
from typing import Unpack

import torch
from torch import Tensor, nn

from contracts import NLIBatch, StepOutput
from encoders.chunks import concatenate
from encoders.objective import Objective, VectorSettings, step_output
from losses.pairs import Classified, pair_softmax

CLASSES = 3


class SBERT_NLI(Objective):
    """Loss = mean cross-entropy of the three classes. ``seed`` draws the classifier's first weights.

    ``classifier_lr`` is its own learning rate (default: ``lr``, as published). An encoder of random weights is drawn
    towards the classifier's random weights unless the classifier learns much faster than it does.
    """

    objective = "sbert_nli"
    consumes = NLIBatch

    def __init__(
        self,
        *,
        seed: int,
        classifier_lr: float | None,
        **settings: Unpack[VectorSettings],
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.encoder = self.make_encoder()
        self.classifier = nn.Linear(3 * self.encoder.width, CLASSES)
        bound = 1 / math.sqrt(self.classifier.in_features)  # torch's own, but from a seed
        drawn = torch.Generator().manual_seed(seed)
        for weight in self.classifier.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=drawn)

    def own_rates(self) -> dict[nn.Parameter, float]:
        rate = self.hparams.classifier_lr
        return {} if rate is None else dict.fromkeys(self.classifier.parameters(), rate)

    def training_step(self, batch: NLIBatch, batch_idx: int) -> StepOutput:
        sequences = concatenate([batch.premises, batch.hypotheses])
        encoded = self.encoder.encode(sequences)
        left, right = encoded.vectors.chunk(2)
        found, each = self.over_prefixes(partial(self._classified, batch.labels), left, right)
        metrics = {"accuracy": found.accuracy, **each}
        return step_output(found.loss, metrics, examples=len(batch.labels), sequences=sequences, encoded=encoded)

    def _classified(self, labels: Tensor, left: Tensor, right: Tensor) -> Classified:
        """Prefixes are classified by the weights of their numbers: one classifier for all (MRL-E of Matryoshka)."""
        weight = self.classifier.weight.unflatten(1, (3, -1))[..., : left.shape[1]].flatten(1)
        return pair_softmax(left, right, labels, weight, self.classifier.bias)
