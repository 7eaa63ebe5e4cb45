import math

import pytest
import torch

from losses.seq2seq import token_losses


def test_a_token_costs_minus_log_of_its_share():
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]], dtype=torch.float64)
    found = token_losses(logits, torch.tensor([1, 1]))
    torch.testing.assert_close(found, torch.tensor([-math.log(0.75), -math.log(0.2)], dtype=torch.float64))


def test_the_arithmetic_is_float32_under_autocast():
    logits = torch.tensor([[10.0, 3.0]], dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = token_losses(logits, torch.tensor([0]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(math.log1p(math.exp(-7)), rel=1e-3)  # bfloat16 would make it 0


def test_no_tokens_cost_nothing_and_have_a_gradient():
    logits = torch.zeros(0, 5, requires_grad=True)
    token_losses(logits, torch.zeros(0, dtype=torch.int64)).sum().backward()
    assert logits.grad is not None


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(tokens, words\)"):
        token_losses(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64))
