"""Self-debiasing against its definition, written one token at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contrastive_encoders.synthesis.decoding.sampling import self_debias


def softmax(logits):
    top = max(logits)
    weights = [math.exp(value - top) for value in logits]
    return [weight / sum(weights) for weight in weights]


def debiased(logits, counters, decay, epsilon):
    """Compute p* of one row, in Python's floats: probability, excess, factor with floor, renormalized."""
    p = softmax(logits)
    p_b = [softmax(counter) for counter in counters]
    weights = []
    for token, own in enumerate(p):
        delta = own - max((other[token] for other in p_b), default=0.0)
        factor = math.exp(decay * delta) if delta < 0 else 1.0
        weights.append(own * max(factor, epsilon))
    return [weight / sum(weights) for weight in weights]


def batched(rows):
    """Batch rows of (logits, counters, decay, epsilon) with different numbers of counters into the arguments."""
    most = max(len(counters) for _, counters, _, _ in rows)
    vocabulary = len(rows[0][0])
    logits = torch.tensor([row[0] for row in rows], dtype=torch.float64)
    junk = [1e4] * vocabulary  # the values in place of a missing counter must not matter
    junk[0] = -1e4
    filled = [list(counters) + [junk] * (most - len(counters)) for _, counters, _, _ in rows]
    counters = torch.tensor(filled, dtype=torch.float64).reshape(len(rows), most, vocabulary)
    present = torch.tensor([[c < len(row[1]) for c in range(most)] for row in rows]).reshape(len(rows), most).bool()
    return logits, counters, present, torch.tensor([r[2] for r in rows]), torch.tensor([r[3] for r in rows])


logits_of = st.lists(st.floats(-8, 8), min_size=6, max_size=6)
a_row = st.tuples(
    logits_of,
    st.lists(logits_of, max_size=3),
    st.sampled_from([0.0, 1.0, 10.0, 100.0, 200.0]),
    st.sampled_from([0.0, 0.01, 0.5, 1.0]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(a_row, min_size=1, max_size=4))
def test_every_row_follows_the_definition(rows):
    found = self_debias(*batched(rows)).exp()
    wanted = torch.tensor([debiased(*row) for row in rows], dtype=torch.float64)
    # if the paper's factor is too small for a float64, the logarithms still work; the rest agrees
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-12)


def test_a_banned_token_stays_banned_and_nothing_becomes_nan():
    logits, counters = torch.randn(2, 30), torch.randn(2, 2, 30) * 20
    logits[:, 7] = counters[:, :, 7] = -torch.inf
    for epsilon in (0.0, 0.01):
        found = self_debias(logits, counters, torch.ones(2, 2).bool(), torch.full((2,), 1e4), torch.full((2,), epsilon))
        assert found[:, 7].eq(-torch.inf).all()
        assert not found.isnan().any()
        torch.testing.assert_close(found.exp().sum(-1), torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_are_widened_first(dtype):
    torch.manual_seed(0)
    logits, counters = torch.randn(2, 100).to(dtype), torch.randn(2, 1, 100).to(dtype)
    rest = torch.ones(2, 1).bool(), torch.full((2,), 100.0), torch.full((2,), 0.01)
    found = self_debias(logits, counters, *rest)
    assert found.dtype == torch.float32
    wanted = self_debias(logits.double(), counters.double(), *rest)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
