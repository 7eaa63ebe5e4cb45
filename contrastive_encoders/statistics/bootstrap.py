"""Metrics (Spearman, F1, average precision ...) and their bootstrap replicates over test items, from which confidence
intervals are computed.

Intervals are percentiles of a bootstrap over test items (Efron 1979) with 1,000 resamples. The resamples depend only on
the name of the test set, so that they are equal for every encoder and metric. A resample is the number of times that
each item was drawn. All statistics accept such weights, so nothing is sorted or recomputed a thousand times.

Shape letters: R resamples, N items, K distinct values.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional import pearson_corrcoef, spearman_corrcoef

from contrastive_encoders.core import InputError, ItemScores

RESAMPLES = 1000
BLOCK = 2**22  # weights in memory at a time
# Cosines of float32 embeddings that are this close differ only by rounding: the encoder has collapsed.
CONSTANT = 1e-7


class Scores(NamedTuple):
    """Scores by name, from 0 to 100 (correlations: -100 to 100), with their 95 % intervals [low, high] if intervals
    were computed.
    """

    values: dict[str, float]
    intervals: dict[str, list[float]]
    members: dict[str, list[str]] = {}  # average -> names of the averaged scores
    items: ItemScores | None = None  # only if intervals were requested
    first_documents: dict[str, list[int]] = {}  # retrieval task -> first document of each query

    @classmethod
    def from_estimates(
        cls,
        estimates: "Mapping[str, Estimate]",
        members: dict[str, list[str]] | None = None,
        items: ItemScores | None = None,
        first_documents: dict[str, list[int]] | None = None,
    ) -> "Scores":
        bounds = {name: estimate.interval() for name, estimate in estimates.items()}
        return cls(
            {name: estimate.value for name, estimate in estimates.items()},
            {name: interval for name, interval in bounds.items() if interval is not None},
            members or {},
            items,
            first_documents or {},
        )

    def with_others(self, others: "Scores") -> "Scores":
        """Return these scores merged with ``others``, which are scores of the same tasks; the scores of single test
        items are merged too.
        """
        items = self.items
        if items is not None and others.items is not None:
            items = items._replace(
                replicates={**items.replicates, **others.items.replicates},
                values={**items.values, **others.items.values},
            )
        return self._replace(
            values={**self.values, **others.values}, intervals={**self.intervals, **others.intervals}, items=items
        )


class Estimate(NamedTuple):
    """A score and its bootstrap replicates (None: no interval was requested), in the same unit."""

    value: float
    replicates_R: Tensor | None = None
    values_N: Tensor | None = None  # score of each retrieval query, in the same unit; ``value`` is their mean

    def interval(self) -> list[float] | None:
        """Return the quantiles [2.5 %, 97.5 %] of the replicates, as `paired_tests.interval` does."""
        if self.replicates_R is None:
            return None
        low, high = torch.quantile(self.replicates_R.double(), torch.tensor([0.025, 0.975], dtype=torch.float64))
        return [float(low), float(high)]


def spearman(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x Spearman's correlation, with ties at their mean rank, or 0 if one side is constant."""
    if is_constant(predicted_N) or is_constant(gold_N):
        return _no_correlation(key)
    value = 100 * float(spearman_corrcoef(predicted_N.double(), gold_N.double()))
    ranks = [_Ranks(side) for side in (predicted_N, gold_N)] if key else []
    return _estimate(
        value, key, len(gold_N), lambda w_NR: 100 * _correlation(w_NR, *(one.ranks(w_NR) for one in ranks))
    )


def pearson(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x Pearson's correlation, or 0 if one side is constant."""
    if is_constant(predicted_N) or is_constant(gold_N):
        return _no_correlation(key)
    value = 100 * float(pearson_corrcoef(predicted_N.double(), gold_N.double()))
    x, y = (side.double() - side.double().mean() for side in (predicted_N, gold_N))
    moments_N5 = torch.stack([x, y, x * x, y * y, x * y], dim=-1)

    def statistic(w_NR: Tensor) -> Tensor:
        mean_x, mean_y, xx, yy, xy = moments_N5.T @ w_NR.double() / len(gold_N)
        return 100 * _ratio(xy - mean_x * mean_y, xx - mean_x**2, yy - mean_y**2)

    # torchmetrics returns NaN if one outlier has all of the variance that float64 can represent
    return _estimate(0.0 if math.isnan(value) else value, key, len(gold_N), statistic)


def mean(values_N: Tensor, key: str | None = None, *, scale: float = 100.0) -> Estimate:
    """Return ``scale`` x the mean of the item scores, such as accuracies of 0 and 1, reciprocal ranks, or average
    precisions.
    """
    values_N = values_N.double()
    items = len(values_N)
    return _estimate(
        scale * float(values_N.mean()), key, items, lambda w_NR: scale * (values_N @ w_NR.double() / items)
    )


def ratio_of_sums(above_N: Tensor, below_N: Tensor, key: str | None = None) -> Estimate:
    """Return the ratio of two sums over items, such as the loss per token of texts with different lengths."""
    sides_2N = torch.stack([above_N.double(), below_N.double()])
    above, below = sides_2N.sum(1)

    def statistic(w_NR: Tensor) -> Tensor:
        above_R, below_R = sides_2N @ w_NR.double()
        return above_R / below_R

    return _estimate(float(above / below), key, len(above_N), statistic)


def of_function(
    function: Callable[[np.ndarray, np.ndarray], float], predicted_N: Tensor, gold_N: Tensor, key: str | None = None
) -> Estimate:
    """Return the value of a custom metric, ``function(predicted, gold)`` of two (N,) float64 arrays, in the unit of the
    function.

    The function is computed again on the items of each resample, repeated as often as they were drawn. A resample on
    which its value is not finite counts as 0.

    Raises:
        InputError: the function returns no finite number for all items.
    """
    predicted, gold = predicted_N.double().cpu().numpy(), gold_N.double().cpu().numpy()
    value = function(predicted, gold)
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        location = f"{function.__module__}.{function.__name__}"
        raise InputError(
            location=location, value=f"{value!r:.60}", expected="a function that returns one finite number"
        )

    def statistic(w_NR: Tensor) -> Tensor:
        drawn = (np.repeat(np.arange(len(gold)), w_N.long().numpy()) for w_N in w_NR.T)
        return torch.tensor([function(predicted[items], gold[items]) for items in drawn]).nan_to_num(0.0, 0.0, 0.0)

    return _estimate(float(value), key, len(gold), statistic)


def f1(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x F1 of class 1, or 0 if there are no true positives."""
    hit_N, called_N, true_N = (predicted_N == 1) & (gold_N == 1), predicted_N == 1, gold_N == 1

    def statistic(w_NR: Tensor) -> Tensor:
        hits, called, true = (side.double() @ w_NR.double() for side in (hit_N, called_N, true_N))
        return 200 * hits / (called + true).clamp(min=1)

    return _estimate(float(statistic(torch.ones(len(gold_N), 1))), key, len(gold_N), statistic)


def average_precision(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x the average precision, where the relevant items are those with ``gold`` 1. Tied items enter
    together, as in scikit-learn.
    """
    above = _Thresholds(predicted_N, gold_N)

    def statistic(w_NR: Tensor) -> Tensor:
        seen_KR, hits_KR = above.count(w_NR)
        new_KR = torch.diff(hits_KR, dim=0, prepend=hits_KR.new_zeros(1, w_NR.shape[1]))
        return 100 * (hits_KR / seen_KR.clamp(min=1) * new_KR).sum(0) / hits_KR[-1].clamp(min=1)

    return _estimate(float(statistic(torch.ones(len(gold_N), 1))), key, len(gold_N), statistic)


def best_f1(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x F1 at the best threshold, which is selected again in every resample."""
    above = _Thresholds(predicted_N, gold_N)

    def statistic(w_NR: Tensor) -> Tensor:
        seen_KR, hits_KR = above.count(w_NR)
        return (200 * hits_KR / (seen_KR + hits_KR[-1]).clamp(min=1)).amax(0)

    return _estimate(float(statistic(torch.ones(len(gold_N), 1))), key, len(gold_N), statistic)


class _Thresholds:
    """Counts of predicted and true positives if each of the K distinct predicted values is the threshold."""

    def __init__(self, predicted_N: Tensor, gold_N: Tensor) -> None:
        self.order_N = torch.argsort(predicted_N, descending=True, stable=True)
        sorted_N, self.positive_N1 = predicted_N[self.order_N], (gold_N[self.order_N] == 1).double().unsqueeze(-1)
        last_N = torch.ones(len(sorted_N), dtype=torch.bool)  # whether the item is the last of its tie
        last_N[:-1] = sorted_N[1:] != sorted_N[:-1]
        self.ends_K = torch.nonzero(last_N).squeeze(-1)

    def count(self, w_NR: Tensor) -> tuple[Tensor, Tensor]:
        """Return two (K, R) counts of the items at or above each of K values in each of R resamples: all items, and the
        items with ``gold`` 1.
        """
        w_NR = w_NR[self.order_N].double()
        return w_NR.cumsum(0)[self.ends_K], (w_NR * self.positive_N1).cumsum(0)[self.ends_K]


def v_measure(clusters_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x the harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007)."""
    (_, cluster_N), (_, class_N) = (torch.unique(side, return_inverse=True) for side in (clusters_N, gold_N))
    _, cell_N = torch.unique(torch.stack([cluster_N, class_N]), dim=1, return_inverse=True)

    def statistic(w_NR: Tensor) -> Tensor:
        cluster_R, class_R, both_R = (_entropies(side_N, w_NR) for side_N in (cluster_N, class_N, cell_N))
        apart_R = cluster_R + class_R
        return 100 * torch.where(apart_R > 0, 2 * (apart_R - both_R) / apart_R.clamp(min=1e-30), 1.0).clamp(0, 1)

    return _estimate(float(statistic(torch.ones(len(gold_N), 1))), key, len(gold_N), statistic)


def _entropies(group_N: Tensor, w_NR: Tensor) -> Tensor:
    """Return the entropy of the distribution of items over groups, in each of R resamples, (R,)."""
    sums_GR = torch.zeros(int(group_N.max()) + 1, w_NR.shape[1], dtype=torch.float64)
    return torch.special.entr(sums_GR.index_add_(0, group_N, w_NR.double()) / len(group_N)).sum(0)


def _estimate(value: float, key: str | None, items: int, statistic: Callable[[Tensor], Tensor]) -> Estimate:
    """Return ``value`` as an estimate, with bootstrap replicates if ``key`` is given.

    The replicates are ``statistic`` of the resampling weights (N, R), one block of resamples at a time.
    """
    return Estimate(value, torch.cat([statistic(w_NR) for w_NR in _weights(key, items)]) if key else None)


def _no_correlation(key: str | None) -> Estimate:
    return Estimate(0.0, torch.zeros(RESAMPLES) if key else None)


def mean_of_queries(values_N: Tensor, key: str | None = None) -> Estimate:
    """Return 100 x the mean of the scores of queries. If ``key`` is given, the estimate also contains the score of each
    query.
    """
    return mean(values_N, key)._replace(values_N=100 * values_N.double().cpu() if key else None)


def average(estimates: Sequence[Estimate], weights: Sequence[float] | None = None) -> Estimate:
    """Return the weighted mean of estimates on independent test sets. If all estimates contain the scores of their
    queries, the result contains these scores, weighted likewise.
    """
    shares = np.array(weights if weights is not None else [1.0] * len(estimates), dtype=np.float64)
    shares = shares / shares.sum()
    value = sum(float(share) * one.value for share, one in zip(shares, estimates, strict=True))
    replicates = [one.replicates_R for one in estimates]
    if any(one is None for one in replicates):
        return Estimate(value)
    weighted = [float(share) * one for share, one in zip(shares, replicates, strict=True) if one is not None]
    values = [one.values_N for one in estimates if one.values_N is not None]
    if len(values) < len(estimates):
        return Estimate(value, torch.stack(weighted).sum(0))
    number = sum(map(len, values))
    counted = [float(share) * number / max(1, len(one)) * one for share, one in zip(shares, values, strict=True)]
    return Estimate(value, torch.stack(weighted).sum(0), torch.cat(counted))


def is_constant(values_N: Tensor) -> bool:
    return len(values_N) < 2 or float(values_N.max() - values_N.min()) <= CONSTANT


class _Ranks:
    """Mid-ranks of N values in resamples. The values are sorted once, so that resamples need not be sorted."""

    def __init__(self, values_N: Tensor) -> None:
        _, self.place_N = torch.unique(values_N.double(), return_inverse=True)
        self.distinct = int(self.place_N.max()) + 1
        self.order_N = torch.argsort(self.place_N, stable=True)

    def ranks(self, w_NR: Tensor) -> Tensor:
        """Return the ranks of the N values in each of R resamples, minus the mean rank (n + 1) / 2, (N, R)."""
        if self.distinct == len(w_NR):
            size_KR = w_NR[self.order_N]
        else:
            size_KR = w_NR.new_zeros(self.distinct, w_NR.shape[1]).index_add_(0, self.place_N, w_NR)
        rank_KR = size_KR.cumsum(0).sub_(size_KR, alpha=0.5).sub_(len(w_NR) / 2)
        return rank_KR[self.place_N]


def _correlation(w_NR: Tensor, x_NR: Tensor, y_NR: Tensor) -> Tensor:
    """Return the weighted Pearson correlation, (R,), of two variables whose weighted means are 0 in each of R
    resamples.
    """
    wx_NR = w_NR * x_NR
    xy_R, xx_R = (wx_NR * y_NR).sum(0), wx_NR.mul_(x_NR).sum(0)
    return _ratio(xy_R, xx_R, (w_NR * y_NR).mul_(y_NR).sum(0))


def _ratio(xy_R: Tensor, xx_R: Tensor, yy_R: Tensor) -> Tensor:
    """Return the correlations xy / sqrt(xx * yy) of R resamples; 0 if a variance is 0."""
    spread_R = (xx_R.clamp(min=0) * yy_R.clamp(min=0)).sqrt()
    return torch.where(spread_R > 0, xy_R / spread_R.clamp(min=1e-30), 0.0).clamp(-1, 1)


def _weights(key: str, items: int) -> Iterator[Tensor]:
    """Yield the number of times that each of N items was drawn in each of R resamples, (N, R) float32, in blocks of
    resamples.

    Items are the first axis, so that the counts of an item are contiguous.
    """
    columns = max(1, BLOCK // max(1, items))
    for start in range(0, RESAMPLES, columns):
        yield _counts(key, items, start, min(columns, RESAMPLES - start))


@lru_cache(maxsize=4)
def _counts(key: str, items: int, start: int, columns: int) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    rng = np.random.default_rng((seed, start))
    drawn_RN = (
        rng.integers(items, size=(columns, items), dtype=np.int32) + np.arange(0, columns * items, items)[:, None]
    )
    counts_RN = np.bincount(drawn_RN.ravel(), minlength=items * columns).reshape(columns, items)
    return torch.from_numpy(counts_RN.astype(np.float32).T.copy())
