"""A query's few candidates, found by BM25 beforehand, are put into the order of their cosine: AskUbuntu.

The protocol of TSDAE (Wang et al. 2021, package useb), which GenSE table 3 follows: a stable sort of the 20
candidates, so that ties keep the order of BM25; queries without a similar question are left out.

Shape letters: K candidates, Q queries, M metrics, D width.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from evaluation.directions import DIGITS, unit_rows
from evaluation.embed import Pool
from evaluation.statistics import Estimate, mean
from evaluation.task import How

METRICS = ("map", "p@1", "p@5", "mrr")


class Candidates(NamedTuple):
    """One query; at least one of its candidates is relevant."""

    query: str
    texts: list[str]  # K, in the order of BM25
    relevant: list[bool]  # K


class Reranking:
    """100 x the mean over queries of average precision, precision at 1 and 5, and the first hit's reciprocal rank."""

    def __init__(self, name: str, queries: Sequence[Candidates]) -> None:
        self.name, self.queries = name, list(queries)

    def texts(self) -> Iterator[Sequence[str]]:
        yield [one.query for one in self.queries]
        for one in self.queries:
            yield one.texts

    def score_names(self) -> list[str]:
        return [f"{self.name}/cosine/{metric}" for metric in METRICS]

    def score(self, pool: Pool, how: How) -> dict[str, Estimate]:
        values_QM = torch.stack([measures(self._hits(one, pool)) for one in self.queries])
        key = self.name if how.intervals else None
        return {name: mean(values_QM[:, i], key) for i, name in enumerate(self.score_names())}

    def _hits(self, one: Candidates, pool: Pool) -> Tensor:
        """(K,) whether the candidate at each rank is relevant."""
        query_D, *_ = unit_rows(pool.of([one.query]).double(), self.name)
        cosine_K = (unit_rows(pool.of(one.texts).double(), self.name) @ query_D).round(decimals=DIGITS)
        return torch.tensor(one.relevant)[torch.argsort(cosine_K, descending=True, stable=True)]


def measures(hits_K: Tensor) -> Tensor:
    """(4,) float64 average precision, precision at 1 and at 5, reciprocal rank of a ranking with at least one hit."""
    ranks_K = torch.arange(1, len(hits_K) + 1, dtype=torch.float64)
    precision_K = hits_K.double().cumsum(0) / ranks_K
    return torch.stack(
        [
            precision_K[hits_K].mean(),
            precision_K[0],
            precision_K[min(5, len(hits_K)) - 1],
            1 / ranks_K[hits_K][0],
        ]
    )
