"""S-RoBERTa as DINO trains it: the cosine of two sentences is regressed on their score (Schick and Schütze, 2021)."""

from typing import Unpack

from contracts import ScoredPairBatch, StepOutput
from encoders.chunks import concatenate
from encoders.objective import EncoderSettings, Objective, step_output
from losses.pairs import cosine_regression


class SRoBERTa(Objective):
    """Loss = mean squared difference of cosine and score; any backbone, whatever the name says."""

    objective = "sroberta"
    consumes = ScoredPairBatch

    def __init__(
        self,
        **settings: Unpack[EncoderSettings],
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.encoder = self.make_encoder()

    def training_step(self, batch: ScoredPairBatch, batch_idx: int) -> StepOutput:
        sequences = concatenate([batch.left, batch.right])
        encoded = self.encoder.encode(sequences)
        left, right = encoded.vectors.chunk(2)
        found = cosine_regression(left, right, batch.scores)
        metrics = {"cosine": found.cosine, "score": batch.scores.float().mean()}
        return step_output(found.loss, metrics, examples=len(batch.scores), sequences=sequences, encoded=encoded)
