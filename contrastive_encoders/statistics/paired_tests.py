"""Statistics of differences between encoders: intervals and tests over items, tasks, and seeds.

Test items and seeds are two sources of chance that are never mixed. The bootstrap and the swap test show the effect of
another choice of test pairs *for these seeds*. The spread over seeds and the test over seeds show the effect of other
seeds on these pairs.

Shape letters: R resamples or swaps, N test pairs, T tasks, P pairs of arms, S seeds.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

SWAPS = 9999
BLOCK = 2**22  # numbers drawn at a time
MIN_SEEDS = 6  # in each group: below it, the smallest p-value of a permutation test over seeds is not small
ALPHA = 0.05
ROUNDING = 1e-4  # of a swapped difference in 0..100: sums over the swaps are float32, and a tie must stay one


class Spread(NamedTuple):
    mean: float
    deviation: float | None  # None: only one seed
    seeds: int


class SwapTest(NamedTuple):
    """Result of a permutation test of P pairs of arms: the differences in score, ``observed`` (P,), and the differences
    after R random swaps of the arms, ``null`` (R, P).
    """

    observed: np.ndarray
    null: np.ndarray

    def p_values(self) -> np.ndarray:
        """Return the two-sided p-values (P,), which are never 0, because the observed assignment is one of the possible
        assignments.
        """
        tolerance = np.minimum(ROUNDING, np.abs(self.observed) / 2)
        as_far = np.abs(self.null) >= np.abs(self.observed) - tolerance
        return (as_far.sum(0) + 1) / (len(self.null) + 1)


def spread(values: Sequence[float] | np.ndarray) -> Spread:
    """Return the mean of values over seeds and their standard deviation (with n - 1)."""
    values = np.asarray(values, np.float64)
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None, len(values))


def interval(replicates_R: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval as percentiles of the replicates, as `bootstrap.Estimate.interval` does."""
    low, high = np.quantile(replicates_R.astype(np.float64), [0.025, 0.975])
    return float(low), float(high)


def tasks_interval(replicates_TR: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the mean over T tasks, from a bootstrap that resamples both the tasks and their
    items.
    """
    tasks, resamples = replicates_TR.shape
    rng = generator(f"over {tasks} tasks")
    drawn_RT = rng.integers(tasks, size=(resamples, tasks))
    # Another resample of items for each drawn task, so that a task that is drawn twice differs
    items_RT = rng.integers(resamples, size=(resamples, tasks))
    return interval(replicates_TR[drawn_RT, items_RT].mean(1))


def centered_ranks(cosines: Sequence[np.ndarray]) -> np.ndarray:
    """Rank the cosines of N pairs for each of S seeds, and subtract the mean rank: (S, N)."""
    ranks_SN = stats.rankdata(np.array(cosines), axis=-1)
    return ranks_SN - ranks_SN.mean(-1, keepdims=True)


def swap_test(
    sides: Sequence[tuple[np.ndarray, np.ndarray]], gold_N: np.ndarray, key: str, swaps: int = SWAPS
) -> SwapTest:
    """For each pair of arms, run a permutation test, paired by sentence pair, of the difference in Spearman's
    correlation, averaged over seeds.

    ``sides`` are the ``centered_ranks`` (S, N) of both arms, for each pair of arms; differences are first minus second.
    Under the null hypothesis the two arms are exchangeable on every test pair, so the ranks that all their seeds give
    it are swapped, together, with probability 1/2.

    All swaps and all P pairs of arms are one matrix product, because sums of ranks, of their squares and of products
    with the gold ranks are linear in who is swapped.
    """
    gold_N = stats.rankdata(gold_N)
    gold_N = gold_N - gold_N.mean()
    pair_of = np.repeat(np.arange(len(sides)), [len(first) for first, _ in sides])  # of each seed of each pair
    first, second = (np.concatenate([side[which] for side in sides]).astype(np.float64) for which in (0, 1))
    before_3NC, after_3NC = _moments(first.T, gold_N), _moments(second.T, gold_N)
    sums_3C = np.stack([before_3NC.sum(1), after_3NC.sum(1)])
    change_3NC = after_3NC - before_3NC
    scale_31C = np.abs(change_3NC).max(1, keepdims=True)
    scale_31C[scale_31C == 0] = 1.0
    change_3NC = (change_3NC / scale_31C).astype(np.float32)
    rng, null = generator(key), list[np.ndarray]()
    rows = max(1, BLOCK // max(len(gold_N), 3 * len(pair_of)))
    for start in range(0, swaps, rows):
        count = min(rows, swaps - start)
        bits = np.frombuffer(rng.bytes(-(-count * len(gold_N) // 8)), np.uint8)
        swapped_RN = np.unpackbits(bits)[: count * len(gold_N)].reshape(count, -1).astype(np.float32)
        moved_3RC = swapped_RN @ change_3NC * scale_31C
        null.append(_difference(sums_3C[0][:, None] + moved_3RC, sums_3C[1][:, None] - moved_3RC, gold_N, pair_of))
    return SwapTest(_difference(sums_3C[0], sums_3C[1], gold_N, pair_of), np.concatenate(null))


def sign_flip_test(differences_NP: np.ndarray, key: str, swaps: int = SWAPS) -> SwapTest:
    """For each of P pairs of arms, run a permutation test, paired by query, of the mean difference in score.

    Under the null hypothesis two arms are exchangeable on every query, so their scores of it are swapped with
    probability 1/2, which turns the sign of the difference.
    """
    queries = len(differences_NP)
    rng, null = generator(key), list[np.ndarray]()
    rows = max(1, BLOCK // queries)
    for start in range(0, swaps, rows):
        count = min(rows, swaps - start)
        bits = np.frombuffer(rng.bytes(-(-count * queries // 8)), np.uint8)
        signs_RN = 1.0 - 2.0 * np.unpackbits(bits)[: count * queries].reshape(count, -1)
        null.append(signs_RN @ differences_NP / queries)
    return SwapTest(differences_NP.mean(0), np.concatenate(null))


def _moments(ranks_NC: np.ndarray, gold_N: np.ndarray) -> np.ndarray:
    """Return three terms for each of N pairs and C seeds, (3, N, C), from whose sums over the pairs `_correlation`
    computes the correlations with the centered gold ranks.
    """
    return np.stack([ranks_NC, ranks_NC**2, ranks_NC * gold_N[:, None]])


def _difference(first: np.ndarray, second: np.ndarray, gold_N: np.ndarray, pair_of: np.ndarray) -> np.ndarray:
    """Return the difference in correlation, averaged over seeds, for each of P pairs of arms: (..., P). ``first`` and
    ``second`` are the sums of `_moments`, (3, ..., C), of the two arms.
    """
    by_seed = _correlation(first, gold_N) - _correlation(second, gold_N)
    totals = np.add.reduceat(by_seed, np.flatnonzero(np.diff(pair_of, prepend=-1)), axis=-1)
    return totals / np.bincount(pair_of)


def _correlation(sums: np.ndarray, gold_N: np.ndarray) -> np.ndarray:
    """Convert the sums of `_moments`, (3, ...), to 100 x the correlations, (...), which are 0 if the ranks are
    constant.
    """
    total, squares, products = sums
    variance = np.maximum(squares - total**2 / len(gold_N), 0) * (gold_N @ gold_N)
    return 100 * np.divide(products, np.sqrt(variance), out=np.zeros_like(products), where=variance > 1e-9)


def sign_flip_p_value(differences_N: np.ndarray) -> float:
    """Return the two-sided p-value of the sum of differences, from a permutation test that flips the signs of
    differences.
    """
    if not differences_N.any():
        return 1.0
    result = stats.permutation_test(
        (differences_N,),
        np.sum,
        permutation_type="samples",
        n_resamples=SWAPS,
        vectorized=True,
        batch=max(1, BLOCK // len(differences_N)),
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def seeds_test(first: np.ndarray, second: np.ndarray) -> float | None:
    """Return the two-sided p-value of a permutation test over the seeds of two arms, or None if either arm has fewer
    than six seeds.
    """
    if min(len(first), len(second)) < MIN_SEEDS:
        return None
    if np.ptp(np.concatenate([first, second])) == 0:
        return 1.0
    result = stats.permutation_test(
        (first, second),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        n_resamples=SWAPS,
        vectorized=True,
        rng=generator("seeds"),
    )
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Apply Holm's correction (1979) to n p-values: the smallest is multiplied by n, the next by n - 1, and so on, and
    the results never decrease.
    """
    adjusted, before = [0.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values, kind="stable")):
        before = max(before, min(1.0, (len(p_values) - place) * float(p_values[index])))
        adjusted[index] = before
    return adjusted


def generator(key: str) -> np.random.Generator:
    """Return a random generator whose numbers depend only on ``key``, and are the same on every machine."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little"))
