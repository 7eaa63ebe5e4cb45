"""MLM masks: 15 % of the tokens, 80/10/10, special tokens never."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from contracts import IGNORED_LABEL, InputError
from datamodules.masking import mask_tokens

VOCABULARY, MASK = 50, 4


def masked(ids, special, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    return mask_tokens(ids, special, rng, mask_id=MASK, vocab_size=VOCABULARY, **kwargs)


def test_rates_are_15_percent_and_80_10_10():
    ids = np.full(400_000, 7)
    corrupted, labels = masked(ids, np.zeros(len(ids), dtype=bool))
    predicted = labels != IGNORED_LABEL
    assert stats.binomtest(int(predicted.sum()), len(ids), 0.15).pvalue > 1e-4
    now = corrupted[predicted]
    # A random token is a mask or the token itself once in VOCABULARY each
    counts = [(now == MASK).sum(), (now == 7).sum(), ((now != MASK) & (now != 7)).sum()]
    share = np.array([0.8 + 0.1 / VOCABULARY, 0.1 + 0.1 / VOCABULARY, 0.1 * (VOCABULARY - 2) / VOCABULARY])
    assert stats.chisquare(counts, share * predicted.sum()).pvalue > 1e-4
    others = np.delete(np.bincount(now, minlength=VOCABULARY), [MASK, 7])
    assert stats.chisquare(others).pvalue > 1e-4  # special ids are drawn too, as published


def test_positions_are_independent():
    ids = np.full(200_000, 7)
    _, labels = masked(ids, np.zeros(len(ids), dtype=bool))
    predicted = (labels != IGNORED_LABEL).astype(float)
    assert abs(np.corrcoef(predicted[:-1], predicted[1:])[0, 1]) < 4 / np.sqrt(len(ids))


@given(
    ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=60),
    seed=st.integers(0, 999),
    probability=st.floats(0, 0.99),
)
@settings(max_examples=200, deadline=None)
def test_special_tokens_stay_and_labels_are_the_originals(ids, seed, probability):
    ids = np.array(ids, dtype=np.int64)
    special, before = ids < 5, ids.copy()
    corrupted, labels = masked(ids, special, seed, probability=probability)
    assert np.array_equal(ids, before)
    assert np.array_equal(corrupted[special], ids[special])
    assert (labels[special] == IGNORED_LABEL).all()
    predicted = labels != IGNORED_LABEL
    assert np.array_equal(labels[predicted], ids[predicted])
    assert np.array_equal(corrupted[~predicted], ids[~predicted])
    assert corrupted.dtype == labels.dtype == np.int64


def test_a_probability_that_leaves_nothing_is_refused():
    for probability in (-0.1, 1.0, 15):
        with pytest.raises(InputError, match=r"data.mlm_probability: wanted a share.*\[0, 1\)"):
            masked(np.arange(3), np.zeros(3, dtype=bool), probability=probability)
