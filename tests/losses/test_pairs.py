"""Cosine regression and the softmax over relations against their equations, written one number at a time."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from losses.pairs import cosine_regression, pair_softmax


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 999))
def test_regression_is_the_mean_squared_difference(pairs, width, seed):
    left, right = drawn(pairs, width, seed=seed), drawn(pairs, width, seed=seed + 1)
    scores = torch.rand(pairs, generator=torch.Generator().manual_seed(seed))
    cosines = [
        sum(a * b for a, b in zip(u, v, strict=True)) / math.hypot(*u) / math.hypot(*v)
        for u, v in zip(left.tolist(), right.tolist(), strict=True)
    ]
    found = cosine_regression(left, right, scores)
    expected = sum((c - y) ** 2 for c, y in zip(cosines, scores.tolist(), strict=True)) / pairs
    assert found.loss.item() == pytest.approx(expected, abs=1e-12)
    assert found.cosine.item() == pytest.approx(sum(cosines) / pairs, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 999))
def test_softmax_is_the_cross_entropy_of_u_v_and_their_distance(pairs, width, seed):
    left, right = drawn(pairs, width, seed=seed), drawn(pairs, width, seed=seed + 1)
    weight, bias = drawn(3, 3 * width, seed=seed + 2), drawn(3, seed=seed + 3)
    labels = torch.randint(3, (pairs,), generator=torch.Generator().manual_seed(seed))
    total, hits = 0.0, 0
    for u, v, label in zip(left.tolist(), right.tolist(), labels.tolist(), strict=True):
        features = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        logits = [
            sum(w * x for w, x in zip(row, features, strict=True)) + b
            for row, b in zip(weight.tolist(), bias.tolist(), strict=True)
        ]
        total -= logits[label] - math.log(sum(map(math.exp, logits)))
        hits += logits[label] == max(logits)
    found = pair_softmax(left, right, labels, weight, bias)
    assert found.loss.item() == pytest.approx(total / pairs, rel=1e-9, abs=1e-12)
    assert found.accuracy.item() == pytest.approx(hits / pairs)


def test_both_compute_in_float32_under_autocast():
    left, right, scores = drawn(8, 16, dtype=torch.float32), drawn(8, 16, seed=1, dtype=torch.float32), torch.rand(8)
    weight, bias, labels = drawn(3, 48, dtype=torch.float32), torch.zeros(3), torch.arange(8) % 3
    plain = cosine_regression(left, right, scores).loss, pair_softmax(left, right, labels, weight, bias).loss
    with torch.autocast("cpu", torch.bfloat16):
        cast = cosine_regression(left, right, scores).loss, pair_softmax(left, right, labels, weight, bias).loss
    assert plain == cast


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cosine_regression(torch.ones(2, 4), torch.ones(3, 4), torch.ones(2)), "(2, 4), (3, 4) and (2,)"),
        (lambda: cosine_regression(torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, 1)), "(2, 4) and (2, 1)"),
        (lambda: cosine_regression(torch.ones(0, 4), torch.ones(0, 4), torch.ones(0)), "at least one"),
        (
            lambda: pair_softmax(
                torch.ones(2, 4), torch.ones(2, 4), torch.zeros(2).long(), torch.ones(3, 8), torch.ones(3)
            ),
            "and (3, 8)",
        ),
        (
            lambda: pair_softmax(
                torch.ones(0, 4), torch.ones(0, 4), torch.zeros(0).long(), torch.ones(3, 12), torch.ones(3)
            ),
            "at least one pair",
        ),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
