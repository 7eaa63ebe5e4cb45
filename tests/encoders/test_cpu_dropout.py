"""Truth: binomial distributions, and the gradient of a product with the mask that the values reveal."""

import pytest
import torch
from scipy import stats
from torch import nn

from contrastive_encoders.encoders.kernels.cpu_dropout import fast_dropouts

SHAPE = 301, 1001


def dropped_ones(p, seed=0, dtype=torch.float32):
    layer, x = nn.Dropout(p), torch.ones(SHAPE, dtype=dtype, requires_grad=True)
    torch.manual_seed(seed)
    with fast_dropouts(layer):
        y = layer(x)
    assert y.dtype == dtype
    return x, y


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.9])
def test_zeros_have_the_probability_p(p):
    dropped = (dropped_ones(p)[1] == 0).flatten()
    assert stats.binomtest(int(dropped.sum()), dropped.numel(), p).pvalue > 1e-3


def test_elements_that_share_a_number_are_independent():
    dropped = (dropped_ones(0.3)[1] == 0).flatten()
    fours = dropped[: dropped.numel() // 4 * 4].view(-1, 4).long()
    patterns = (fours * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16)
    zeros = [bin(pattern).count("1") for pattern in range(16)]
    expected = [len(fours) * 0.3**count * 0.7 ** (4 - count) for count in zeros]
    expected = [one * int(patterns.sum()) / sum(expected) for one in expected]
    assert stats.chisquare(patterns.tolist(), expected).pvalue > 1e-3


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 1e-2)])
def test_kept_elements_are_divided_by_their_probability(dtype, tolerance):
    _, y = dropped_ones(0.1, dtype=dtype)
    kept = y[y != 0].float()
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.9), atol=tolerance, rtol=0)


def test_the_gradient_has_the_same_mask():
    x, y = dropped_ones(0.4)
    weights = torch.linspace(1, 2, x.numel()).view(SHAPE)
    (y * weights).sum().backward()
    torch.testing.assert_close(x.grad, weights * y.detach())


def test_numbers_follow_from_the_seed():
    first, second, other = (dropped_ones(0.4, seed)[1] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_extreme_probabilities(p, expected):
    assert torch.equal(dropped_ones(p)[1], torch.full(SHAPE, expected))


def test_evaluation_keeps_all_elements():
    layer, x = nn.Dropout(0.5).eval(), torch.ones(SHAPE)
    with fast_dropouts(layer):
        assert torch.equal(layer(x), x)
