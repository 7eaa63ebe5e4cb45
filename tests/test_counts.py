"""Counts with a noun."""

import pytest

from contrastive_encoders.core.counts import count_of


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1_200, "query", "1,200 queries"),
        (1, "query", "1 query"),
        (2, "hypothesis", "2 hypotheses"),
        (2, "process", "2 processes"),
        (2, "day", "2 days"),
        (3, "training row", "3 training rows"),
    ],
)
def test_a_noun_agrees_with_its_number(number, noun, shown):
    assert count_of(number, noun) == shown
