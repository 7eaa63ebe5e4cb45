"""Tweets that say the same or not, by their cosine: Twitter-URL and PIT-2015, GenSE's TwitterPara.

The protocol of TSDAE (Wang et al. 2021, package useb): average precision without the pairs on which the annotators
could not agree, and Spearman's correlation with the votes over all pairs.
"""

import logging
from collections.abc import Iterator, Sequence

import torch

from contracts import PairTask
from evaluation.embed import Pool
from evaluation.statistics import Estimate, average_precision, is_constant, spearman
from evaluation.sts import cosines
from evaluation.task import How

log = logging.getLogger(__name__)

DEBATABLE = 3.0  # more: a paraphrase; fewer: none


class Paraphrases:
    """``pairs.gold`` holds votes or a rating; above ``debatable`` it is a paraphrase."""

    def __init__(self, pairs: PairTask, debatable: float = DEBATABLE) -> None:
        self.pairs, self.name, self.debatable = pairs, pairs.name, debatable

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.pairs.left
        yield self.pairs.right

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/ap", f"{self.name}/cosine/spearman"]

    def score(self, pool: Pool, how: How) -> dict[str, Estimate]:
        cosine_N, gold_N = cosines(self.pairs, pool), torch.from_numpy(self.pairs.gold)
        if is_constant(cosine_N):
            log.warning("%s: all pairs have the same cosine (%.4f)", self.name, cosine_N[0])
        decided_N = gold_N != self.debatable
        is_paraphrase_N = (gold_N > self.debatable).long()
        key = self.name if how.intervals else None
        ap = average_precision(cosine_N[decided_N], is_paraphrase_N[decided_N], key)
        return dict(zip(self.score_names(), (ap, spearman(cosine_N, gold_N, key)), strict=True))
