"""Correlations and proportions with their 95 % intervals, all in 0..100."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torchmetrics.functional import pearson_corrcoef, spearman_corrcoef

Z95 = 1.959964  # normal quantile of 97.5 %
# Cosines of float32 vectors that are this close together differ by rounding alone: the encoder has collapsed.
CONSTANT = 1e-7


class Scores(NamedTuple):
    """Values in 0..100 (correlations: -100..100) and, under the same names, their [low, high]."""

    values: dict[str, float]
    intervals: dict[str, list[float]]


class Estimate(NamedTuple):
    """A correlation in -1..1 and the variance of its Fisher z; ``variance`` is infinite for fewer than 4 pairs."""

    value: float
    variance: float

    def interval(self) -> list[float]:
        if math.isinf(self.variance):
            return [-100.0, 100.0]
        z = math.atanh(max(-1 + 1e-15, min(1 - 1e-15, self.value)))
        half = Z95 * math.sqrt(self.variance)
        return [100 * math.tanh(z - half), 100 * math.tanh(z + half)]


def spearman(predicted: Tensor, gold: Tensor) -> Estimate:
    """Variance by Bonett and Wright (2000), Psychometrika 65, eq. for Spearman: (1 + r^2 / 2) / (n - 3)."""
    value = 0.0 if is_constant(predicted) or is_constant(gold) else float(spearman_corrcoef(predicted, gold))
    return Estimate(value, _over(1 + value**2 / 2, len(gold) - 3))


def pearson(predicted: Tensor, gold: Tensor) -> Estimate:
    """Variance by Fisher: 1 / (n - 3)."""
    value = 0.0 if is_constant(predicted) or is_constant(gold) else float(pearson_corrcoef(predicted, gold))
    # torchmetrics gives NaN where one outlier holds all the variance that float64 can tell from none
    return Estimate(0.0 if math.isnan(value) else value, _over(1, len(gold) - 3))


def is_constant(values: Tensor) -> bool:
    return len(values) < 2 or float(values.max() - values.min()) <= CONSTANT


def weighted(estimates: Sequence[Estimate], weights: Sequence[float]) -> tuple[float, list[float]]:
    """Weighted mean of independent correlations in 0..100 and its interval.

    The variance of r is that of z times (1 - r^2)^2 (delta method), since correlations, not their z, are averaged.
    """
    shares = [weight / sum(weights) for weight in weights]
    value = sum(share * one.value for share, one in zip(shares, estimates, strict=True))
    if any(math.isinf(one.variance) for one in estimates):
        return 100 * value, [-100.0, 100.0]
    variance = sum(
        (share * (1 - one.value**2)) ** 2 * one.variance for share, one in zip(shares, estimates, strict=True)
    )
    return 100 * value, around(100 * value, 100 * math.sqrt(variance), -100)


def around(value: float, error: float, low: float) -> list[float]:
    """95 % normal interval of a value with this standard error, clipped to [low, 100]."""
    return [max(low, value - Z95 * error), min(100.0, value + Z95 * error)]


def mean_with_interval(per_query: Tensor) -> tuple[float, list[float]]:
    """Mean of values in 0..1, in 0..100, with the normal approximation over the queries."""
    value = 100 * float(per_query.mean())
    error = 100 * float(per_query.std()) / math.sqrt(len(per_query)) if len(per_query) > 1 else math.inf
    return value, around(value, error, 0)


def share_with_interval(hits: Tensor) -> tuple[float, list[float]]:
    """Share of hits (0 or 1) in 0..100 with Wilson's (1927) interval, which is no point at 0 and at 100."""
    n, share = len(hits), float(hits.double().mean())
    centre = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    return 100 * share, [max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))]


def _over(numerator: float, denominator: int) -> float:
    return numerator / denominator if denominator > 0 else math.inf
