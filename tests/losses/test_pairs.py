"""Cosine regression and the softmax over relations against their equations, written one number at a time."""

import re

import pytest
import torch

from contrastive_encoders.losses.pairs import cosine_regression, pair_softmax


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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
        (lambda: cosine_regression(torch.ones(2, 4), torch.ones(3, 4), torch.ones(2)), "(2, 4), (3, 4), and (2,)"),
        (lambda: cosine_regression(torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, 1)), "(2, 4), and (2, 1)"),
        (lambda: cosine_regression(torch.ones(0, 4), torch.ones(0, 4), torch.ones(0)), "(0, 4), (0, 4), and (0,)"),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
