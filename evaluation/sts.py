"""Semantic textual similarity: how the cosine of two sentences' vectors correlates with people's ratings.

A year's test set is several subsets. ``all`` is one correlation over their concatenation (Reimers and Gurevych 2019;
Gao et al. 2021), ``mean`` and ``wmean`` average the subsets' own correlations, plainly or by their number of pairs
(SentEval). A set without subsets has ``cosine``. ``max`` is the best of cosine, dot product, negative Euclidean and
negative Manhattan distance over the whole set, as sentence-transformers selected checkpoints until version 3.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from contracts import PairTask
from evaluation.embed import Pool
from evaluation.statistics import Estimate, average, is_constant, pearson, spearman
from evaluation.task import How
from evaluation.tsv import SENTEVAL

log = logging.getLogger(__name__)

METRICS: dict[str, Callable[[Tensor, Tensor, str | None], Estimate]] = {"spearman": spearman, "pearson": pearson}


class Similarity:
    """An STS set, or any other pairs with a rating."""

    def __init__(self, pairs: PairTask) -> None:
        self.pairs, self.name = pairs, pairs.name
        self.subsets = list(dict.fromkeys(pairs.subsets))
        # raw text and SentEval's form of it are the same items, and are resampled alike
        self.key = pairs.name.removesuffix(SENTEVAL)

    def texts(self) -> Iterator[Sequence[str]]:
        yield self.pairs.left
        yield self.pairs.right

    def score_names(self) -> list[str]:
        protocols = ("all", "mean", "wmean", "max") if len(self.subsets) > 1 else ("cosine", "max")
        return [f"{self.name}/{protocol}/{metric}" for metric in METRICS for protocol in protocols]

    def score(self, pool: Pool, how: How) -> dict[str, Estimate]:
        gold_N = torch.from_numpy(self.pairs.gold)
        similarities = {"cosine": cosines(self.pairs, pool), **distances(self.pairs, pool)}
        cosine_N = similarities["cosine"]
        if is_constant(cosine_N):
            log.warning(
                "%s: all pairs have the same cosine (%.4f); the correlation counts as 0", self.name, cosine_N[0]
            )
        key = self.key if how.intervals else None
        found = {}
        for metric, correlate in METRICS.items():
            whole = correlate(cosine_N, gold_N, key)
            values = {name: correlate(values_N, gold_N, None).value for name, values_N in similarities.items()}
            best = max(values, key=lambda name: values[name])  # the first, cosine, where they are equal
            found[f"max/{metric}"] = whole if best == "cosine" else correlate(similarities[best], gold_N, key)
            if len(self.subsets) == 1:
                found[f"cosine/{metric}"] = whole
                continue
            found[f"all/{metric}"] = whole
            parts, sizes = self._parts(correlate, cosine_N, gold_N, key)
            found[f"mean/{metric}"], found[f"wmean/{metric}"] = average(parts), average(parts, sizes)
        return {f"{self.name}/{name}": estimate for name, estimate in found.items()}

    def _parts(
        self, correlate: Callable, cosine_N: Tensor, gold_N: Tensor, key: str | None
    ) -> tuple[list[Estimate], list[int]]:
        parts, sizes = [], []
        for subset in self.subsets:
            rows_N = torch.tensor([name == subset for name in self.pairs.subsets])
            parts.append(correlate(cosine_N[rows_N], gold_N[rows_N], key and f"{key}/{subset}"))
            sizes.append(int(rows_N.sum()))
        return parts, sizes


def cosines(task: PairTask, pool: Pool) -> Tensor:
    """(pairs,) float64; 0 where a vector is zero or not finite, as SentEval has it."""
    similarity = _cosines(task, pool)
    lost = int(similarity.isnan().sum())
    if lost:
        log.warning(
            "%s: %d of %d pairs hold a vector that is not finite; they count as 0", task.name, lost, len(task.gold)
        )
    return similarity.nan_to_num(nan=0.0)


def item_cosines(task: PairTask, pool: Pool) -> Tensor:
    """The same, to be kept; it does not warn again."""
    return _cosines(task, pool).nan_to_num(nan=0.0)


def _cosines(task: PairTask, pool: Pool) -> Tensor:
    similarity = cosine_similarity(pool.of(task.left).double(), pool.of(task.right).double(), dim=-1)
    # a sentence with itself must be 1, not 1 - 2e-16: otherwise pairs that tie are ranked by the processor's rounding
    return similarity.round(decimals=12)


def distances(task: PairTask, pool: Pool) -> dict[str, Tensor]:
    """The other three of the four: larger is more similar; (pairs,) float64 each."""
    left_ND, right_ND = pool.of(task.left).double(), pool.of(task.right).double()
    found = {
        "manhattan": -(left_ND - right_ND).abs().sum(-1),
        "euclidean": -(left_ND - right_ND).square().sum(-1).sqrt(),
        "dot": (left_ND * right_ND).sum(-1),
    }
    return {name: values_N.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for name, values_N in found.items()}
