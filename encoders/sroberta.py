"""S-RoBERTa as DINO trains it: the cosine of two sentences is regressed on their score (Schick and Schütze, 2021)."""

from functools import partial
from typing import Unpack

from contracts import ScoredPairBatch, StepOutput
from encoders.chunks import concatenate
from encoders.objective import Objective, VectorSettings, step_output
from losses.pairs import cosine_regression


class SRoBERTa(Objective):
    """Loss = mean squared difference of cosine and score; any backbone, whatever the name says."""

    objective = "sroberta"
    consumes = ScoredPairBatch

    def __init__(
        self,
        **settings: Unpack[VectorSettings],
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.encoder = self.make_encoder()

    def training_step(self, batch: ScoredPairBatch, batch_idx: int) -> StepOutput:
        sequences = concatenate([batch.left, batch.right])
        encoded = self.encoder.encode(sequences)
        left, right = encoded.vectors.chunk(2)
        found, each = self.over_prefixes(partial(cosine_regression, scores_B=batch.scores), left, right)
        metrics = {"cosine": found.cosine, "score": batch.scores.float().mean(), **each}
        return step_output(found.loss, metrics, examples=len(batch.scores), sequences=sequences, encoded=encoded)
