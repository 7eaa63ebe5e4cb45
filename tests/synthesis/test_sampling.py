"""Top-k and top-p against transformers' warpers, random numbers against Random123's known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from contrastive_encoders.synthesis.decoding.sampling import TokenCandidates, candidates, digest, pick, uniforms


def distribution(found: TokenCandidates, vocabulary: int) -> torch.Tensor:
    weights = found.cumulative_RK.diff(dim=1, prepend=torch.zeros(len(found.cumulative_RK), 1, dtype=torch.float64))
    empty = torch.zeros(len(weights), vocabulary, dtype=torch.float64)
    return (empty.scatter_add_(1, found.ids_RK, weights)) / weights.sum(1, keepdim=True)


def warped(scores, top_k, top_p, temperature):
    """Apply the published order of transformers."""
    if temperature != 1:
        scores = TemperatureLogitsWarper(temperature)(None, scores)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p and top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores.softmax(-1)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
    vocabulary=st.sampled_from([2, 7, 60]),
    top_k=st.sampled_from([None, 0, 1, 5, 50, 1000]),
    top_p=st.sampled_from([None, 0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    temperature=st.sampled_from([1.0, 0.7, 2.0]),
)
def test_as_transformers_restricts(seed, spread, vocabulary, top_k, top_p, temperature):
    scores = (torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(seed)).double() * spread).log_softmax(
        -1
    )
    found = candidates(scores, top_k=top_k, top_p=top_p, temperature=temperature)
    wanted = warped(scores, top_k, top_p, temperature)
    torch.testing.assert_close(distribution(found, vocabulary), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("top_k", [1, 3, 5, 30])
@pytest.mark.parametrize("top_p", [None, 0.61])
def test_equally_likely_tokens_as_transformers_keeps_them(top_k, top_p):
    """16-bit logits tie often: all that are as likely as the k-th stay; top-p keeps as many of them as it must."""
    scores = torch.randn(20, 400, generator=torch.Generator().manual_seed(1)).mul(2).round().div(2).double()
    found = distribution(candidates(scores, top_k=top_k, top_p=top_p), 400)
    wanted = warped(scores, top_k, top_p, 1.0)
    if top_p is None:
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    # transformers' unstable sort does not define which of equally likely tokens top-p drops
    torch.testing.assert_close(found.sort(dim=1).values, wanted.sort(dim=1).values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_a_nucleus_wider_than_what_is_looked_at_first(spread):
    scores = (torch.randn(4, 20_000, generator=torch.Generator().manual_seed(2)).double() * spread).log_softmax(-1)
    found = candidates(scores, top_p=0.9)
    torch.testing.assert_close(distribution(found, 20_000), warped(scores, None, 0.9, 1.0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("restriction", [{}, {"top_k": 4}, {"top_p": 0.8}, {"top_k": 6, "top_p": 0.9}])
def test_what_is_drawn_follows_the_distribution(restriction):
    scores = torch.randn(1, 12, generator=torch.Generator().manual_seed(3)).mul(1.5).log_softmax(-1)
    found = candidates(scores, **restriction)
    draws = 20_000
    u = torch.from_numpy(uniforms(digest(1, ("x",)), range(draws), 1)[:, 0])
    drawn = pick(TokenCandidates(*(part.expand(draws, -1) for part in found)), u).bincount(minlength=12)
    wanted = warped(scores, restriction.get("top_k"), restriction.get("top_p"), 1.0)[0]
    assert drawn[wanted == 0].eq(0).all()
    assert (
        stats.chisquare(drawn[wanted > 0], wanted[wanted > 0].double() / wanted.double().sum() * draws).pvalue > 0.001
    )


@pytest.mark.parametrize("u", [0.0, 1e-300, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_what_is_kept(u):
    scores = torch.randn(1, 500, generator=torch.Generator().manual_seed(4)).log_softmax(-1)
    found = candidates(scores, top_k=5, top_p=0.9)
    token = pick(found, torch.tensor([u], dtype=torch.float64))
    assert distribution(found, 500)[0, token] > 0


def test_the_last_bit_of_a_logit_changes_no_token():
    """Two tokens exchange ranks: only the id decides which comes first in the cumulative distribution."""
    one = torch.tensor([[0.3, 0.3 + 1e-7, 0.2, 0.1]]).log()
    other = torch.tensor([[0.3 + 1e-7, 0.3, 0.2, 0.1]]).log()
    u = torch.arange(200, dtype=torch.float64) / 200 + 0.0013  # away from the limits 0.25 and 0.625
    picked = [
        pick(TokenCandidates(*(part.expand(200, -1) for part in candidates(scores, top_k=3))), u)
        for scores in (one, other)
    ]
    assert (picked[0] == picked[1]).all()


def test_logits_that_are_not_numbers_are_told_apart():
    scores = torch.randn(2, 30)
    scores[1, 4] = torch.nan
    tokens = pick(candidates(scores.log_softmax(-1), top_k=5, top_p=0.9), torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert tokens[0] >= 0
    assert tokens[1] == -1


# ------------------------------------------------------------------------------- random numbers


def test_a_number_depends_on_seed_key_sample_and_position_alone():
    all_of_them = uniforms(digest(42, ("abc", "0.5")), range(8), 40)
    assert np.array_equal(uniforms(digest(42, ("abc", "0.5")), range(3, 5), 10), all_of_them[3:5, :10])
    others = [(43, ("abc", "0.5")), (42, ("abc", "0")), (42, ("ab", "c0.5")), (42, ("abc", 0.5)), (42, (0, "abc"))]
    for seed, key in others:
        assert not np.isin(uniforms(digest(seed, key), range(8), 40), all_of_them).any()


def test_numbers_are_uniform_over_prompts_samples_and_positions():
    u = np.stack([uniforms(digest(7, (prompt, "1")), range(5), 40) for prompt in range(300)])
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > 0.001
    for left, right in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u[:, :, 1:], u[:, :, :-1])):
        assert abs(stats.pearsonr(left.ravel(), right.ravel()).statistic) < 0.015
