"""Values against scipy and scikit-learn; replicates against the same libraries on the explicit resample."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, v_measure_score

from contrastive_encoders.statistics import bootstrap
from contrastive_encoders.statistics.bootstrap import average_precision, best_f1, f1, mean, pearson, spearman, v_measure


@pytest.mark.parametrize("n", [4, 57, 3750, 9927])
def test_correlations_are_scipys_also_with_ties(n):
    rng = np.random.default_rng(n)
    gold = rng.integers(0, 26, n) / 5
    predicted = np.round(0.1 * gold + rng.normal(0, 0.2, n), 2)
    ours = spearman(torch.tensor(predicted), torch.tensor(gold)), pearson(torch.tensor(predicted), torch.tensor(gold))
    assert ours[0].value == pytest.approx(100 * stats.spearmanr(predicted, gold).statistic, abs=2e-4)
    assert ours[1].value == pytest.approx(100 * stats.pearsonr(predicted, gold).statistic, abs=1e-10)


def test_rounding_noise_is_no_correlation():
    noise = 1 + 1e-9 * torch.arange(50, dtype=torch.float64)
    for correlate in (spearman, pearson):
        found = correlate(noise, torch.arange(50, dtype=torch.float64), "noise")
        assert (found.value, found.interval()) == (0.0, [0.0, 0.0])


def resamples(key: str, items: int) -> list[np.ndarray]:
    """Return the items of each resample, written out."""
    counts = torch.cat(list(bootstrap._weights(key, items)), dim=1).long()
    return [np.repeat(np.arange(items), counts[:, r].numpy()) for r in range(bootstrap.RESAMPLES)]


def sklearns_ap(predicted: np.ndarray, gold: np.ndarray) -> float:
    return average_precision_score(gold, predicted) if gold.any() else 0.0


def greatest_f1(predicted: np.ndarray, gold: np.ndarray) -> float:
    precision, recall, _ = precision_recall_curve(gold, predicted)
    return np.max(2 * precision * recall / np.maximum(precision + recall, 1e-12))


RATINGS = np.random.default_rng(5).integers(0, 6, 61).astype(float)
NOISY = np.round(RATINGS + np.random.default_rng(6).normal(0, 2, 61), 1)
LABELS, CALLED = (RATINGS > 3).astype(int), (NOISY > 3).astype(int)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("ours", "oracle", "predicted", "gold"),
    [
        (spearman, lambda x, y: stats.spearmanr(x, y).statistic, NOISY, RATINGS),
        (spearman, lambda x, y: stats.spearmanr(x, y).statistic, np.random.default_rng(7).normal(size=61), RATINGS),
        (pearson, lambda x, y: stats.pearsonr(x, y).statistic, NOISY, RATINGS),
        (f1, lambda x, y: f1_score(y, x), CALLED, LABELS),
        (average_precision, sklearns_ap, NOISY, LABELS),
        (best_f1, greatest_f1, NOISY, LABELS),
        (v_measure, lambda x, y: v_measure_score(y, x), CALLED, RATINGS),
        (lambda x, _, key: mean(x, key), lambda x, _: x.mean(), NOISY, RATINGS),
    ],
)
def test_a_replicate_is_the_statistic_of_a_resample(ours, oracle, predicted, gold, monkeypatch):
    monkeypatch.setattr(bootstrap, "BLOCK", 61 * 300)  # several blocks, the last one short
    found = ours(torch.tensor(predicted), torch.tensor(gold), "a key")
    assert found.value == pytest.approx(100 * oracle(predicted, gold), abs=2e-4)
    drawn = resamples("a key", 61)
    assert all(len(rows) == 61 for rows in drawn)
    assert len({tuple(rows) for rows in drawn}) == bootstrap.RESAMPLES
    expected = [100 * oracle(predicted[rows], gold[rows]) for rows in drawn]
    np.testing.assert_allclose(found.replicates_R.numpy(), expected, atol=2e-3)
    assert found.interval() == pytest.approx(np.quantile(expected, [0.025, 0.975]).tolist(), abs=2e-3)


def test_every_item_is_drawn_equally_often():
    counts = torch.cat(list(bootstrap._weights("fair", 40)), dim=1)
    assert stats.chisquare(counts.sum(1).numpy()).pvalue > 1e-3
    # the count of one item in a resample of n is binomial (n, 1/n)
    expected = stats.binom(40, 1 / 40).pmf([0, 1, 2]) * counts.numel()
    assert [int((counts == k).sum()) for k in range(3)] == pytest.approx(expected.tolist(), rel=0.03)


def test_a_set_is_resampled_alike_for_every_encoder_and_another_set_is_not():
    x, y = torch.tensor(NOISY), torch.tensor(RATINGS)
    first, again, other = spearman(x, y, "sts12"), spearman(x, y, "sts12"), spearman(x, y, "sts13")
    assert torch.equal(first.replicates_R, again.replicates_R)
    assert not torch.equal(first.replicates_R, other.replicates_R)


def test_spearmans_interval_holds_the_truth_in_95_of_100_samples():
    # the Spearman correlation of two normals is 6 / pi * asin(rho / 2) (Pearson 1907)
    rho, truth = 0.8, 100 * 6 / math.pi * math.asin(0.4)
    rng = np.random.default_rng(1)
    draws = 400
    held = 0
    for draw in range(draws):
        x = rng.normal(size=120)
        y = rho * x + math.sqrt(1 - rho**2) * rng.normal(size=120)
        low, high = spearman(torch.tensor(x), torch.tensor(y), str(draw)).interval()
        held += low <= truth <= high
    assert 0.91 <= held / draws <= 0.98
