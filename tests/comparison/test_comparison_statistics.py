"""Intervals cover what they should, tests alarm as often as they may; oracles: scipy, statsmodels, closed forms."""

import numpy as np
import pytest
import torch
from scipy import stats

from comparison.contrasts import Contrast
from comparison.statistics import (
    average_ranks,
    holm,
    interval,
    over_tasks,
    seeds_test,
    spread,
    swap_test,
)
from evaluation.statistics import spearman


def correlated(rng, gold: np.ndarray, correlation: float) -> np.ndarray:
    return correlation * gold + np.sqrt(1 - correlation**2) * rng.standard_normal(len(gold))


def spearman_of(correlation: float) -> float:
    """Of a bivariate normal (Pearson 1907)."""
    return 100 * 6 / np.pi * np.arcsin(correlation / 2)


def test_the_paired_bootstrap_covers_the_true_difference():
    covered, repeats, truth = 0, 150, spearman_of(0.8) - spearman_of(0.6)
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        gold = rng.standard_normal(120)
        sides = [
            spearman(torch.from_numpy(correlated(rng, gold, one)), torch.from_numpy(gold), f"set {repeat}")
            for one in (0.8, 0.6)
        ]
        low, high = interval((sides[0].replicates_R - sides[1].replicates_R).numpy())
        covered += low <= truth <= high
    assert 0.95 - 3 * 0.0178 < covered / repeats <= 1.0  # three standard errors of 150 draws


@pytest.mark.parametrize("seeds", [1, 3])
def test_ties_alarm_as_often_as_alpha(seeds):
    alarms, repeats = 0, 300
    for repeat in range(repeats):
        rng = np.random.default_rng((repeat, seeds))
        gold = rng.standard_normal(80)
        sides = tuple(average_ranks([correlated(rng, gold, 0.6) for _ in range(seeds)]) for _ in range(2))
        alarms += swap_test([sides], gold, f"tie {repeat}", swaps=399).p_values()[0] < 0.05
    assert alarms / repeats < 0.05 + 3 * 0.0126
    assert alarms / repeats > 0.05 - 3 * 0.0126


def test_a_known_difference_is_found():
    rng = np.random.default_rng(3)
    gold = rng.standard_normal(400)
    sides = (average_ranks([correlated(rng, gold, 0.8)]), average_ranks([correlated(rng, gold, 0.6)]))
    assert swap_test([sides], gold, "power").p_values()[0] < 0.001


def test_the_swap_test_is_scipys():
    """All 2^9 assignments on scipy's side, random ones on ours."""
    rng = np.random.default_rng(5)
    gold = rng.permutation(9).astype(float)
    pairs = [(rng.standard_normal(9), rng.standard_normal(9)) for _ in range(3)]
    ranks = [(average_ranks([x]), average_ranks([y])) for x, y in pairs]

    def statistic(x, y):
        return stats.pearsonr(x, gold).statistic - stats.pearsonr(y, gold).statistic

    ours = swap_test(ranks, gold, "scipy", swaps=20000)
    for place, (x, y) in enumerate(ranks):
        exact = stats.permutation_test((x, y), statistic, permutation_type="samples", n_resamples=np.inf)
        assert ours.observed[place] == pytest.approx(100 * exact.statistic, abs=1e-6)
        doubled = np.mean(np.abs(exact.null_distribution) >= abs(exact.statistic) - 1e-9)
        assert ours.p_values()[place] == pytest.approx(doubled, abs=0.02)


def test_equal_arms_have_p_one():
    gold = np.arange(20.0)
    ranks = average_ranks([np.sin(gold)])
    assert swap_test([(ranks, ranks)], gold, "equal", swaps=99).p_values()[0] == 1.0


def test_arms_that_differ_in_one_pair_are_a_tie():
    """Whichever way that pair is swapped, the difference is as large: p is 1 by counting."""
    rng = np.random.default_rng(2)
    gold = rng.integers(0, 26, 1379) / 5
    first = average_ranks([gold + rng.standard_normal(1379)])
    second = first.copy()
    second[5] += 0.5
    for place in range(3):
        found = swap_test([(first, second - second.mean())], gold, f"one pair {place}", swaps=999)
        assert found.observed[0] != 0
        assert found.p_values()[0] == pytest.approx(1.0, abs=0.01)


def one_contrast(**more) -> Contrast:
    given = {"first": 0, "second": 1, "score": "s", "difference": 1.0, "over_items": (0.5, 1.5), "over_tasks": None,
             "p": 0.001, "p_holm": 0.001, "p_seeds": None, "averaged": 2.0}  # fmt: skip
    return Contrast(**{**given, **more})


@pytest.mark.parametrize(
    ("more", "told_apart"),
    [
        ({}, True),
        ({"p_holm": 0.2}, False),
        ({"over_items": (-0.1, 2.1)}, False),
        ({"averaged": -2.0}, False),  # the test says the opposite of the scores
        ({"difference": -1.0, "over_items": (-1.5, -0.5), "averaged": -2.0}, True),
        ({"p": None, "p_holm": None, "averaged": None}, True),
        ({"p": None, "p_holm": None, "averaged": None, "over_items": None}, False),
    ],
)
def test_test_and_interval_must_agree(more, told_apart):
    assert one_contrast(**more).distinguishable is told_apart


def test_equal_scores_whose_seeds_agree_differently_are_not_told_apart():
    """An average of seeds that disagree correlates better: the swap test alone would alarm in two of five such ties."""
    alarms, repeats = 0, 60
    for repeat in range(repeats):
        rng = np.random.default_rng((9, repeat))
        gold = rng.standard_normal(200)
        ranks, replicates, values = [], [], []
        for shared in (0.95, 0.3):
            common = rng.standard_normal(200)
            noise = [np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.standard_normal(200) for _ in range(3)]
            seeds = [0.6 * gold + 0.8 * one for one in noise]
            ranks.append(average_ranks(seeds))
            found = [spearman(torch.from_numpy(one), torch.from_numpy(gold), f"set {repeat}") for one in seeds]
            replicates.append(np.mean([one.replicates_R.numpy() for one in found], axis=0))
            values.append(float(np.mean([one.value for one in found])))
        test = swap_test([(ranks[0], ranks[1])], gold, f"tie {repeat}", swaps=199)
        p = float(test.p_values()[0])
        alarms += one_contrast(
            difference=values[0] - values[1], over_items=interval(replicates[0] - replicates[1]), p=p, p_holm=p,
            averaged=float(test.observed[0]),
        ).distinguishable  # fmt: skip
    assert alarms / repeats <= 0.05 + 3 * 0.028  # three standard errors of 60 draws


def test_holm_by_hand_and_by_statsmodels():
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert holm(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not installed")
    drawn = np.random.default_rng(1).random(50) ** 3
    assert holm(drawn) == pytest.approx(multitest.multipletests(drawn, method="holm")[1])


def test_seeds_are_tested_from_six_a_side():
    low, high = np.arange(6.0), np.arange(6.0) + 100
    assert seeds_test(low, high[:5]) is None
    assert seeds_test(low, high) == pytest.approx(2 / 924)  # 12 over 6 assignments, both tails
    assert seeds_test(low, low) == pytest.approx(1.0)


def test_choosing_tasks_too_widens_the_interval():
    rng = np.random.default_rng(0)
    replicates = np.array([-5.0, 0.0, 5.0, 10.0])[:, None] + rng.standard_normal((4, 1000))
    fixed, chosen = interval(replicates.mean(0)), over_tasks(replicates)
    assert chosen[1] - chosen[0] > 3 * (fixed[1] - fixed[0])


def test_spread_of_one_seed_is_unknown():
    assert spread([3.0]) == (3.0, None, 1)
    assert spread([1.0, 3.0]) == (2.0, pytest.approx(np.sqrt(2)), 2)
