"""Intervals have their coverage and tests their false alarm rate; oracles: scipy, statsmodels, closed forms."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.collect import FinishedRun
from contrastive_encoders.comparison.contrasts import PairwiseComparison, contrasts
from contrastive_encoders.core import ItemScores
from contrastive_encoders.statistics.bootstrap import spearman
from contrastive_encoders.statistics.headline import RankingMetric
from contrastive_encoders.statistics.paired_tests import (
    centered_ranks,
    holm,
    interval,
    seeds_test,
    swap_test,
    tasks_interval,
)

SCORE = "stsb/cosine/spearman"


def correlated(rng, gold: np.ndarray, correlation: float) -> np.ndarray:
    return correlation * gold + np.sqrt(1 - correlation**2) * rng.standard_normal(len(gold))


def spearman_of(correlation: float) -> float:
    """Return the Spearman correlation of a bivariate normal (Pearson 1907)."""
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
        sides = tuple(centered_ranks([correlated(rng, gold, 0.6) for _ in range(seeds)]) for _ in range(2))
        alarms += swap_test([sides], gold, f"tie {repeat}", swaps=399).p_values()[0] < 0.05
    assert alarms / repeats < 0.05 + 3 * 0.0126
    assert alarms / repeats > 0.05 - 3 * 0.0126


def contrast_of(sides, gold: np.ndarray) -> PairwiseComparison:
    """Return the contrast of two arms with these similarities, given for each seed."""
    arms = []
    for label, cosines in zip("ab", sides, strict=True):
        runs = []
        for seed, one in enumerate(cosines):
            scores = {SCORE: 100 * float(stats.spearmanr(one, gold)[0])}
            items = ItemScores({"stsb": one}, {"stsb": gold}, {}, {"stsb": "0"}, {})
            runs.append(FinishedRun(Path(label), {"scores": scores, "seeds": [seed]}, [], items))
        arms.append(Arm(label, runs, {}))
    [found] = contrasts(arms, RankingMetric(SCORE, [SCORE]))
    return found


@pytest.mark.parametrize("seeds", [(1, 3), (3, 2)], ids=str)
def test_all_seeds_of_unequal_arms_are_tested(seeds):
    """The first seeds say the opposite of the means. Truth: swaps by a slow loop, each seed against each."""
    rng = np.random.default_rng(8)
    gold = rng.standard_normal(60)
    quality = [(0.55, 0.5, 0.6)[: seeds[0]], (0.8, 0.35, 0.3)[: seeds[1]]]
    sides = [np.array([correlated(rng, gold, one) for one in each]) for each in quality]
    ranks = [stats.rankdata(side, axis=-1) for side in sides]
    couples, target = list(itertools.product(*ranks)), stats.rankdata(gold)

    def difference(swapped):
        return np.mean(
            [
                np.corrcoef(np.where(swapped, b, a), target)[0, 1] - np.corrcoef(np.where(swapped, a, b), target)[0, 1]
                for a, b in couples
            ]
        )

    found = contrast_of(sides, gold)
    observed = difference(np.zeros(60, bool))
    assert 100 * observed == pytest.approx(found.difference)
    null = [difference(rng.random(60) < 0.5) for _ in range(1000)]
    assert found.p == pytest.approx(np.mean(np.abs(null) >= abs(observed)), abs=0.05)
    first = contrast_of([side[:1] for side in sides], gold)
    assert abs(first.p - found.p) > 0.1


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_unequal_arms_that_tie_alarm_no_more_often_than_alpha(shared, monkeypatch):
    """One seed against three, whose similarities share much or nothing."""
    monkeypatch.setattr(swap_test, "__defaults__", (299,))
    alarms, repeats = 0, 300
    for repeat in range(repeats):
        rng = np.random.default_rng((repeat, round(10 * shared)))
        gold, common = rng.standard_normal(80), rng.standard_normal(80)
        noise = [np.sqrt(shared) * common + np.sqrt(1 - shared) * rng.standard_normal(80) for _ in range(3)]
        sides = [[correlated(rng, gold, 0.6)], [0.6 * gold + 0.8 * one for one in noise]]
        alarms += contrast_of(sides, gold).p < 0.05
    assert alarms / repeats < 0.05 + 3 * 0.0126
    assert alarms / repeats > 0.05 - 3 * 0.0126


def test_random_swaps_say_what_all_swaps_do():
    """All 2^9 assignments by scipy's correlations, with one seed and with several."""
    rng = np.random.default_rng(5)
    gold = rng.permutation(9).astype(float)
    ranks = [tuple(centered_ranks(rng.standard_normal((seeds, 9))) for _ in range(2)) for seeds in (1, 3, 2)]

    def statistic(x, y):
        return np.mean([stats.pearsonr(a, gold)[0] - stats.pearsonr(b, gold)[0] for a, b in zip(x, y, strict=True)])

    ours = swap_test(ranks, gold, "scipy", swaps=20000)
    for place, (x, y) in enumerate(ranks):
        spearmans = [stats.spearmanr(a, gold)[0] - stats.spearmanr(b, gold)[0] for a, b in zip(x, y, strict=True)]
        assert ours.observed[place] == pytest.approx(100 * np.mean(spearmans))
        null = []
        for which in itertools.product([False, True], repeat=9):
            null.append(statistic(np.where(which, y, x), np.where(which, x, y)))
        exact = np.mean(np.abs(null) >= abs(statistic(x, y)) - 1e-9)
        assert ours.p_values()[place] == pytest.approx(exact, abs=0.02)


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
    fixed, chosen = interval(replicates.mean(0)), tasks_interval(replicates)
    assert chosen[1] - chosen[0] > 3 * (fixed[1] - fixed[0])
