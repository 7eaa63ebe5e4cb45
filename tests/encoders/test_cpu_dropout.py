"""Truth: binomial distributions, correlations, and the gradient of a product with the mask that the values reveal."""

from contextlib import nullcontext

import pytest
import torch
from scipy import stats
from torch import nn
from transformers import AutoModel

from contrastive_encoders.encoders.kernels.compiled_layers import fast_layers
from contrastive_encoders.encoders.kernels.cpu_dropout import fast_dropouts
from contrastive_encoders.encoders.kernels.onednn_layers import replaced
from tests.operators import Operators

SHAPE = 301, 1001


class OwnDropout(nn.Dropout):
    """A layer that is more than dropout."""


def dropped_ones(p, seed=0, shape=SHAPE, dtype=torch.float32):
    layer, x = nn.Dropout(p), torch.ones(shape, dtype=dtype, requires_grad=True)
    torch.manual_seed(seed)
    with fast_dropouts(layer):
        y = layer(x)
    assert (y.dtype, y.shape) == (dtype, x.shape)
    return x, y


def zeros(y):
    return (y == 0).flatten()


def test_layers_in_training_draw_no_number_per_element(tiny_mlm_with_dropout):
    model = AutoModel.from_pretrained(tiny_mlm_with_dropout).train()
    ids = torch.arange(5, 13).view(2, 4)
    names = []
    for context in (fast_layers(model), nullcontext()):
        with Operators() as operators, context:
            model.embeddings(ids)
        names.append(operators.names & {"aten::random_.from", "aten::bernoulli_.float"})
    assert names == [{"aten::random_.from"}, {"aten::bernoulli_.float"}]


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.9])
def test_zeros_have_the_probability_p(p):
    dropped = zeros(dropped_ones(p)[1])
    assert stats.binomtest(int(dropped.sum()), dropped.numel(), p).pvalue > 1e-3


def test_elements_that_share_a_number_are_independent():
    dropped = zeros(dropped_ones(0.3)[1])
    fours = dropped[: dropped.numel() // 4 * 4].view(-1, 4).long()
    patterns = (fours * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16)
    ones = [pattern.bit_count() for pattern in range(16)]
    expected = [len(fours) * 0.3**count * 0.7 ** (4 - count) for count in ones]
    assert stats.chisquare(patterns.tolist(), expected, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("lag", [1, 4, SHAPE[1], SHAPE[0] * SHAPE[1] // 7])
def test_elements_at_a_distance_are_uncorrelated(lag):
    dropped = zeros(dropped_ones(0.3)[1]).float() - 0.3
    correlation = float((dropped[lag:] * dropped[:-lag]).mean()) / (0.3 * 0.7)
    assert abs(correlation) < 4 / len(dropped) ** 0.5


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-4), (torch.float32, 1e-4), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)],
)
def test_kept_elements_are_divided_by_their_probability(dtype, tolerance):
    _, y = dropped_ones(0.1, dtype=dtype)
    kept = y[y != 0].float()
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.9), atol=tolerance, rtol=0)


@pytest.mark.parametrize("shape", [(), (0, 5), (7,), (3, 2, 5)])
def test_shapes(shape):
    _, y = dropped_ones(0.5, shape=shape)
    assert torch.isin(y, torch.tensor([0.0, 2.0])).all()


def test_a_transposed_input():
    layer, x = nn.Dropout(0.5), torch.arange(1.0, 301).view(20, 15).t()
    torch.manual_seed(0)
    with fast_dropouts(layer):
        y = layer(x)
    torch.testing.assert_close(y, torch.where(y == 0, 0.0, 2 * x))
    assert 0 < int((y == 0).sum()) < 300


def test_the_gradient_has_the_same_mask():
    x, y = dropped_ones(0.4)
    weights = torch.linspace(1, 2, x.numel()).view(SHAPE)
    (y * weights).sum().backward()
    torch.testing.assert_close(x.grad, weights * y.detach())


def test_numbers_follow_from_the_seed_and_differ_between_calls():
    first, second, other = (dropped_ones(0.4, seed)[1] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    layer, x = nn.Dropout(0.4), torch.ones(SHAPE)
    torch.manual_seed(1)
    with fast_dropouts(layer):
        assert not torch.equal(layer(x), layer(x))


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_extreme_probabilities(p, expected):
    assert torch.equal(dropped_ones(p)[1], torch.full(SHAPE, expected))


def test_the_argument_has_the_name_of_nn_dropout():
    layer, x = nn.Dropout(0.5), torch.ones(SHAPE)
    with fast_dropouts(layer):
        assert set(layer(input=x).unique().tolist()) == {0.0, 2.0}


def test_settings_that_change_inside_the_context():
    layer, x = nn.Dropout(0.5), torch.ones(SHAPE)
    with fast_dropouts(layer):
        layer.eval()
        assert torch.equal(layer(x), x)
        layer.train().p = 1.0
        assert not layer(x).any()


@pytest.mark.parametrize("layer", [nn.Dropout(0.5, inplace=True), OwnDropout(0.5), nn.Dropout2d(0.5)])
def test_other_layers_are_not_replaced(layer):
    with fast_dropouts(layer):
        assert "forward" not in vars(layer)


def test_without_gradients_nothing_is_replaced():
    layer = nn.Dropout(0.5)
    with torch.no_grad(), fast_dropouts(layer):
        assert "forward" not in vars(layer)


def test_an_outer_context_is_valid_after_an_inner_one():
    layer = nn.Dropout(0.5)
    with replaced([layer], lambda _: torch.neg):
        with fast_dropouts(layer):
            assert layer.forward is not torch.neg
        assert layer.forward is torch.neg
    assert "forward" not in vars(layer)
