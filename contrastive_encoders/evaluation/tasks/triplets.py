"""Triplet accuracy: how often the positive is closer to the anchor than the negative."""

from collections.abc import Iterator, Sequence

import torch

from contrastive_encoders.evaluation.embedding_pool import DIGITS, EmbeddingPool, unit_rows
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.statistics.bootstrap import Estimate, mean


class TripletTask:
    """Task that computes the percentage of triplets whose positive is closer to the anchor than the negative.

    ``sides`` are the anchors, the positives, and the negatives, N texts each. A tie counts as wrong.
    """

    def __init__(self, name: str, sides: Sequence[Sequence[str]]) -> None:
        self.name, self.sides = name, list(sides)

    def texts(self) -> Iterator[Sequence[str]]:
        yield from self.sides

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/accuracy"]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        anchors, positives, negatives = (unit_rows(pool.lookup(side).double(), self.name) for side in self.sides)
        near_N, far_N = ((anchors * other).sum(-1).round(decimals=DIGITS) for other in (positives, negatives))
        (name,) = self.score_names()
        return {name: mean(torch.gt(near_N, far_N), self.name if options.intervals else None)}
