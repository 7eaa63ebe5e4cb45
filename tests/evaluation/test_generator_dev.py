"""Perplexity by both definitions and accuracy, against the same done slowly; selection as published."""

import math

import numpy as np
import pytest
from torch import nn

from contracts import HeldOutTexts
from evaluation.callback import choose_suites
from evaluation.generator_dev import GeneratorDev, estimates
from tests.data import Options

LOSSES = np.array([3.0, 10.0, 1.5, 8.0, 2.0])
TOKENS = np.array([3, 5, 1, 4, 2])
RIGHT = np.array([True, True, False, True])


class Writer(nn.Module):
    def __init__(self, batch_size=None):
        super().__init__()
        self.batch_size = batch_size

    def held_out_texts(self):
        return HeldOutTexts(LOSSES, TOKENS, RIGHT, self.batch_size)


def test_corpus_perplexity_counts_every_token_alike():
    total = tokens = 0.0
    for loss, number in zip(LOSSES, TOKENS, strict=True):
        total, tokens = total + loss, tokens + number
    assert estimates(Writer().held_out_texts(), None)[1].value == pytest.approx(math.exp(total / tokens), rel=1e-12)


def test_the_published_perplexity_counts_every_batch_alike():
    batches = [(3.0 + 10.0) / (3 + 5), (1.5 + 8.0) / (1 + 4), 2.0 / 2]  # the last one is not full
    slowly = math.exp(sum(batches) / len(batches))
    assert estimates(Writer(2).held_out_texts(), None)[1].value == pytest.approx(slowly, rel=1e-12)
    assert slowly != pytest.approx(estimates(Writer().held_out_texts(), None)[1].value, rel=1e-3)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_selection_is_accuracy_in_percent_minus_ten_perplexities(batch_size):
    scores = GeneratorDev().score(Writer(batch_size), intervals=True).values
    assert list(scores) == [f"generator-dev/{metric}" for metric in ("accuracy", "perplexity", "selection")]
    assert scores["generator-dev/accuracy"] == 75.0
    perplexity = scores["generator-dev/perplexity"]
    assert scores["generator-dev/selection"] == pytest.approx(75.0 - 10 * perplexity)


def test_intervals_hold_the_value_and_shrink_with_more_texts():
    few = GeneratorDev().score(Writer(), intervals=True).intervals
    many = estimates(HeldOutTexts(np.tile(LOSSES, 50), np.tile(TOKENS, 50), np.tile(RIGHT, 50), None), "x")
    for (low, high), estimate in zip(few.values(), many, strict=True):
        less, more = estimate.interval()
        assert less <= estimate.value <= more
        assert more - less < (high - low) / 3
    assert GeneratorDev().score(Writer(), intervals=False).intervals == {}


def test_a_model_that_writes_is_scored_without_tables_and_by_name():
    whole, during = choose_suites(Writer(), [], None, ["sts"], ["generator-dev"], Options(), [])
    assert [task.name for task in whole] == [task.name for task in during] == ["generator-dev"]
    assert "generator-dev/selection" in during.score_names()
    assert not len(choose_suites(Writer(), [], None, ["sts"], ["stsb-dev"], Options(), []).during)
    assert whole.sentences() == whole.baselines() == {}
