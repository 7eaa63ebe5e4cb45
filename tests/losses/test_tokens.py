"""Cross entropy of tokens against the definition, one token at a time."""

import math

import pytest
import torch

from contrastive_encoders.losses.cross_entropy import masked_lm_sum, token_losses


def test_is_the_sum_of_negative_log_probabilities():
    logits = torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([3, 0, 10, 3, 7])
    expected = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        expected -= math.log(math.exp(row[label]) / sum(math.exp(value) for value in row))
    assert masked_lm_sum(logits, labels).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("labels", [[], [-100, -100]])
def test_nothing_to_predict_is_zero_with_a_gradient_path(labels):
    logits = torch.randn(len(labels), 11, requires_grad=True)
    loss = masked_lm_sum(logits, torch.tensor(labels, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_low_precision_logits_are_summed_in_float32():
    logits = torch.randn(64, 101, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.arange(64)
    expected = -logits.double().log_softmax(-1)[torch.arange(64), labels].sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = masked_lm_sum(logits, labels)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_token_costs_minus_log_of_its_share():
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]], dtype=torch.float64)
    found = token_losses(logits, torch.tensor([1, 1]))
    torch.testing.assert_close(found, torch.tensor([-math.log(0.75), -math.log(0.2)], dtype=torch.float64))


def test_token_losses_are_float32_under_autocast():
    logits = torch.tensor([[10.0, 3.0]], dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = token_losses(logits, torch.tensor([0]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(math.log1p(math.exp(-7)), rel=1e-3)  # bfloat16 would make it 0
