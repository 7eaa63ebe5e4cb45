"""Every score as an estimate: its value, and what it would have been on resampled test items.

Intervals are percentiles of a bootstrap over test items (Efron 1979): 1,000 resamples, drawn from the name of the test
set alone, so that the same set is resampled alike for every encoder and metric. A resample is a row of counts, how often
each item was drawn; all statistics take such weights, hence nothing is sorted or recomputed a thousand times.

Shape letters: R resamples, N items, K distinct values.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional import pearson_corrcoef, spearman_corrcoef

RESAMPLES = 1000
BLOCK = 2**22  # weights held at a time
# Cosines of float32 vectors that are this close together differ by rounding alone: the encoder has collapsed.
CONSTANT = 1e-7


class Scores(NamedTuple):
    """Values in 0..100 (correlations: -100..100) and, under the same names, their [low, high]."""

    values: dict[str, float]
    intervals: dict[str, list[float]]


class Estimate(NamedTuple):
    """A value and its bootstrap replicates, both in the unit of the score; None where no interval is wanted."""

    value: float
    replicates_R: Tensor | None = None

    def interval(self) -> list[float] | None:
        """[2.5 %, 97.5 %] of the replicates."""
        if self.replicates_R is None:
            return None
        low, high = torch.quantile(self.replicates_R.double(), torch.tensor([0.025, 0.975], dtype=torch.float64))
        return [float(low), float(high)]


def spearman(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """100 x Spearman's correlation, ties at their mean rank; 0 where one side is constant."""
    constant = is_constant(predicted_N) or is_constant(gold_N)
    value = 0.0 if constant else float(spearman_corrcoef(predicted_N.double(), gold_N.double()))
    if key is None:
        return Estimate(100 * value)
    ranks = [_Ranks(predicted_N), _Ranks(gold_N)]
    parts = [_correlation(w_RN, *(one.under(w_RN) for one in ranks)) for w_RN in _weights(key, len(gold_N))]
    return Estimate(100 * value, 100 * torch.cat(parts))


def pearson(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """100 x Pearson's correlation; 0 where one side is constant."""
    constant = is_constant(predicted_N) or is_constant(gold_N)
    value = 0.0 if constant else float(pearson_corrcoef(predicted_N.double(), gold_N.double()))
    # torchmetrics gives NaN where one outlier holds all the variance that float64 can tell from none
    value = 0.0 if math.isnan(value) else value
    if key is None:
        return Estimate(100 * value)
    sides = [side.double() - side.double().mean() for side in (predicted_N, gold_N)]
    parts = [_correlation(w_RN, *(side.float() for side in sides)) for w_RN in _weights(key, len(gold_N))]
    return Estimate(100 * value, 100 * torch.cat(parts))


def mean(values_N: Tensor, key: str | None = None, *, scale: float = 100.0) -> Estimate:
    """``scale`` x the mean of what each item scores: accuracy of 0 and 1, reciprocal ranks, average precisions."""
    values_N = values_N.double()
    value = scale * float(values_N.mean())
    if key is None:
        return Estimate(value)
    parts = [w_RN.double() @ values_N / len(values_N) for w_RN in _weights(key, len(values_N))]
    return Estimate(value, scale * torch.cat(parts))


def f1(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """100 x F1 of the class 1; 0 where nothing of it is found."""
    hit_N, called_N, true_N = (predicted_N == 1) & (gold_N == 1), predicted_N == 1, gold_N == 1

    def of(w_RN: Tensor) -> Tensor:
        hits, called, true = (w_RN @ side.to(w_RN.dtype) for side in (hit_N, called_N, true_N))
        return 200 * hits / (called + true).clamp(min=1)

    value = float(of(torch.ones(1, len(gold_N), dtype=torch.float64)))
    if key is None:
        return Estimate(value)
    return Estimate(value, torch.cat([of(w_RN.double()) for w_RN in _weights(key, len(gold_N))]))


def average_precision(predicted_N: Tensor, gold_N: Tensor, key: str | None = None) -> Estimate:
    """100 x average precision of the items whose ``gold`` is 1, as scikit-learn has it: tied items enter together."""
    order_N = torch.argsort(predicted_N, descending=True, stable=True)
    sorted_N, positive_N = predicted_N[order_N], (gold_N[order_N] == 1).double()
    last_N = torch.ones(len(sorted_N), dtype=torch.bool)  # of its tie
    last_N[:-1] = sorted_N[1:] != sorted_N[:-1]
    ends_K = torch.nonzero(last_N).squeeze(-1)

    def of(w_RN: Tensor) -> Tensor:
        seen_RK = w_RN.cumsum(-1)[:, ends_K]
        hits_RK = (w_RN * positive_N).cumsum(-1)[:, ends_K]
        new_RK = torch.diff(hits_RK, dim=-1, prepend=hits_RK.new_zeros(len(hits_RK), 1))
        precision_RK = hits_RK / seen_RK.clamp(min=1)
        return 100 * (precision_RK * new_RK).sum(-1) / hits_RK[:, -1].clamp(min=1)

    value = float(of(torch.ones(1, len(gold_N), dtype=torch.float64)))
    if key is None:
        return Estimate(value)
    return Estimate(value, torch.cat([of(w_RN[:, order_N].double()) for w_RN in _weights(key, len(gold_N))]))


def average(estimates: Sequence[Estimate], weights: Sequence[float] | None = None) -> Estimate:
    """Weighted mean of scores of independent test sets."""
    shares = np.array(weights if weights is not None else [1.0] * len(estimates), dtype=np.float64)
    shares = shares / shares.sum()
    value = sum(float(share) * one.value for share, one in zip(shares, estimates, strict=True))
    replicates = [one.replicates_R for one in estimates]
    if any(one is None for one in replicates):
        return Estimate(value)
    return Estimate(value, sum(float(s) * one for s, one in zip(shares, replicates, strict=True) if one is not None))


def is_constant(values_N: Tensor) -> bool:
    return len(values_N) < 2 or float(values_N.max() - values_N.min()) <= CONSTANT


class _Ranks:
    """Mid-ranks of N values in a resample, from the order of the whole: nothing is sorted again."""

    def __init__(self, values_N: Tensor) -> None:
        _, self.place_N, _ = torch.unique(values_N.double(), return_inverse=True, return_counts=True)
        self.distinct = int(self.place_N.max()) + 1

    def under(self, w_RN: Tensor) -> Tensor:
        """(R, N) ranks minus their mean, (n + 1) / 2."""
        size_RK = w_RN.new_zeros(len(w_RN), self.distinct).index_add_(1, self.place_N, w_RN)
        rank_RK = size_RK.cumsum(1) - (size_RK - 1) / 2
        return (rank_RK - (w_RN.shape[1] + 1) / 2)[:, self.place_N]


def _correlation(w_RN: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(R,) weighted Pearson of x and y, (N,) or (R, N); 0 where a resample has no variance."""
    total = w_RN.sum(1)

    def moment(values: Tensor) -> Tensor:
        return (w_RN * values).sum(1) / total

    mean_x, mean_y = moment(x), moment(y)
    covariance = moment(x * y) - mean_x * mean_y
    spread = (moment(x * x) - mean_x**2).clamp(min=0) * (moment(y * y) - mean_y**2).clamp(min=0)
    return (covariance / spread.sqrt().clamp(min=1e-12)).clamp(-1, 1)


def _weights(key: str, items: int) -> Iterator[Tensor]:
    """(R, N) float32 counts in blocks of resamples."""
    rows = max(1, BLOCK // max(1, items))
    for start in range(0, RESAMPLES, rows):
        yield _counts(key, items, start, min(rows, RESAMPLES - start))


@lru_cache(maxsize=4)
def _counts(key: str, items: int, start: int, rows: int) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    rng = np.random.default_rng((seed, start))
    drawn_RN = rng.integers(items, size=(rows, items)) + np.arange(rows)[:, None] * items
    counts_RN = np.bincount(drawn_RN.ravel(), minlength=rows * items).reshape(rows, items)
    return torch.from_numpy(counts_RN.astype(np.float32))
