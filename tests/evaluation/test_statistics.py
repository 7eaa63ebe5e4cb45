import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics import pearson, share_with_interval, spearman, weighted


@pytest.mark.parametrize("n", [4, 57, 3750, 9927])
def test_correlations_are_scipys_also_with_ties(n):
    rng = np.random.default_rng(n)
    gold = rng.integers(0, 26, n) / 5
    predicted = np.round(0.1 * gold + rng.normal(0, 0.2, n), 2)
    ours = spearman(torch.tensor(predicted), torch.tensor(gold)), pearson(torch.tensor(predicted), torch.tensor(gold))
    assert ours[0].value == pytest.approx(stats.spearmanr(predicted, gold).statistic, abs=2e-6)
    assert ours[1].value == pytest.approx(stats.pearsonr(predicted, gold).statistic, abs=1e-12)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 5)), min_size=5, max_size=40))
def test_few_levels_mean_many_ties(pairs):
    predicted, gold = np.array(pairs, dtype=float).T
    if len(set(predicted)) > 1 and len(set(gold)) > 1:
        expected = stats.spearmanr(predicted, gold).statistic
    else:
        expected = 0.0  # scipy says NaN
    assert spearman(torch.tensor(predicted), torch.tensor(gold)).value == pytest.approx(expected, abs=5e-6)


def test_rounding_noise_is_no_correlation():
    noise = 1 + 1e-9 * torch.arange(50, dtype=torch.float64)
    for correlate in (spearman, pearson):
        assert correlate(noise, torch.arange(50, dtype=torch.float64)).value == 0.0


def test_pearsons_interval_is_scipys():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=80)
    predicted = gold + rng.normal(size=80)
    expected = stats.pearsonr(predicted, gold).confidence_interval(0.95)
    ours = pearson(torch.tensor(predicted), torch.tensor(gold)).interval()
    assert ours == pytest.approx([100 * expected.low, 100 * expected.high], abs=1e-4)


def test_spearmans_interval_holds_the_truth_in_95_of_100_samples():
    # the Spearman correlation of two normals is 6 / pi * asin(rho / 2) (Pearson 1907)
    rho, truth = 0.8, 100 * 6 / math.pi * math.asin(0.4)
    rng = np.random.default_rng(1)
    draws = 600
    held = 0
    for _ in range(draws):
        x = rng.normal(size=60)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=60)
        low, high = spearman(torch.tensor(x), torch.tensor(y)).interval()
        held += low <= truth <= high
    assert 0.92 <= held / draws <= 0.975


def test_the_interval_of_a_mean_holds_its_truth_in_95_of_100_samples():
    rhos, sizes = (0.3, 0.6, 0.8), (50, 80, 120)
    truth = 100 * sum(rho * size for rho, size in zip(rhos, sizes, strict=True)) / sum(sizes)
    rng = np.random.default_rng(2)
    draws = 400
    held = 0
    for _ in range(draws):
        parts = []
        for rho, size in zip(rhos, sizes, strict=True):
            x = rng.normal(size=size)
            y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=size)
            parts.append(pearson(torch.tensor(x), torch.tensor(y)))
        low, high = weighted(parts, sizes)[1]
        held += low <= truth <= high
    assert 0.92 <= held / draws <= 0.98


def test_too_few_pairs_say_nothing():
    three = pearson(torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 2, 3]))
    assert three.interval() == [-100, 100]
    assert weighted([three, three], [1, 2]) == (pytest.approx(100), [-100, 100])


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (7, 20), (20, 20)])
def test_the_interval_of_a_share_is_wilsons(hits, n):
    value, interval = share_with_interval(torch.arange(n) < hits)
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    assert value == pytest.approx(100 * hits / n)
    assert interval == pytest.approx([100 * expected.low, 100 * expected.high], abs=1e-4)
