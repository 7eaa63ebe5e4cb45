"""NT-Xent and its one-directional form against the papers' equations, pytorch-metric-learning and a dense matrix."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import NTXentLoss
from torch import Tensor

from contrastive_encoders.losses.contrastive import Matching, info_nce, nt_xent, softmax_over_candidates


def views(
    pairs: int, width: int = 8, count: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(pairs, width, generator=generator, dtype=dtype).requires_grad_() for _ in range(count)]


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def simclr_by_the_book(left: Tensor, right: Tensor, temperature: float) -> list[float]:
    """Compute SimCLR, eq. 1, one term at a time: the loss of each of the 2N rows."""
    rows = torch.cat([left, right]).tolist()
    n = len(rows)
    terms = []
    for i in range(n):
        near = math.exp(cosine(rows[i], rows[(i + n // 2) % n]) / temperature)
        every = sum(math.exp(cosine(rows[i], rows[k]) / temperature) for k in range(n) if k != i)
        terms.append(-math.log(near / every))
    return terms


def simcse_by_the_book(
    anchors: Tensor, positives: Tensor, hard: Tensor | None, temperature: float, weight: float
) -> float:
    """Compute supervised SimCSE's equation with weighted hard negatives (e^w on the own ones), averaged.

    The equation is in the paper's appendix.
    """
    total = 0.0
    for i, anchor in enumerate(anchors.tolist()):
        near = math.exp(cosine(anchor, positives[i].tolist()) / temperature)
        every = sum(math.exp(cosine(anchor, other) / temperature) for other in positives.tolist())
        for j, other in enumerate([] if hard is None else hard.tolist()):
            every += (math.exp(weight) if i == j * len(anchors) // len(hard) else 1.0) * math.exp(
                cosine(anchor, other) / temperature
            )
        total -= math.log(near / every)
    return total / len(anchors)


def dense(rows: Tensor, candidates: Tensor, matching: Matching, temperature: float) -> Tensor:
    """Compute the kernel's definition with the full matrix, differentiated by autograd."""
    logits = rows @ candidates.T / temperature
    row = torch.arange(len(rows))
    if matching.hard_RH is not None:
        own = F.one_hot(matching.hard_RH, len(candidates)).sum(1)
        logits = logits + matching.hard_logit * own
    if matching.row_group_R is not None and matching.candidate_group_C is not None:
        excluded = matching.row_group_R[:, None] == matching.candidate_group_C[None, :]
        excluded[row, matching.partner_R] = False
        logits = logits.masked_fill(excluded, -math.inf)
    return F.cross_entropy(logits, matching.partner_R, reduction="sum")


@pytest.mark.parametrize("pairs", [1, 2, 5])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_nt_xent_is_the_papers_equation(pairs, temperature):
    left, right = views(pairs)
    terms = simclr_by_the_book(left, right, temperature)
    mean = nt_xent(left, right, temperature=temperature).loss.item()
    total = nt_xent(left, right, temperature=temperature, reduction="sum").loss.item()
    assert mean == pytest.approx(sum(terms) / len(terms), rel=1e-12, abs=1e-12)
    assert total == pytest.approx(sum(terms), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("pairs", "temperature"), [(2, 0.5), (16, 0.05), (33, 0.07)])
def test_nt_xent_is_pytorch_metric_learnings(pairs, temperature):
    ours, theirs = views(pairs, seed=1), views(pairs, seed=1)
    oracle = NTXentLoss(temperature=temperature)(torch.cat(theirs), torch.arange(pairs).repeat(2))
    loss = nt_xent(*ours, temperature=temperature).loss
    loss.backward()
    oracle.backward()
    torch.testing.assert_close(loss, oracle, rtol=1e-9, atol=0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("weight", [0.0, 1.5, -2.0])
@pytest.mark.parametrize("each", [0, 1, 3], ids="{} hard negatives".format)
def test_info_nce_is_the_papers_equation(weight, each):
    anchors, positives, *more = views(5, count=2 + each)
    weight, hard = (weight, torch.stack(more, 1).flatten(0, 1)) if each else (0.0, None)
    found = info_nce(anchors, positives, hard, temperature=0.1, hard_negative_weight=weight).loss.item()
    assert found == pytest.approx(simcse_by_the_book(anchors, positives, hard, 0.1, weight), rel=1e-12)


def test_same_group_positives_are_no_negatives_but_hard_negatives_stay():
    anchors, positives, hard = views(4, count=3)
    groups = torch.tensor([0, 3, 0, -1])
    found = info_nce(anchors, positives, hard, temperature=0.1, groups=groups).loss
    terms = []
    for i in range(4):
        others = [j for j in range(4) if j == i or groups[j] != groups[i]]
        candidates = torch.cat([positives[others], hard])
        logits = F.cosine_similarity(anchors[i : i + 1], candidates) / 0.1
        terms.append(torch.logsumexp(logits, 0) - logits[others.index(i)])
    torch.testing.assert_close(found, torch.stack(terms).mean(), rtol=1e-12, atol=0)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 7),
    extra=st.integers(0, 6),
    groups=st.integers(1, 4),
    block=st.integers(1, 8),
    hard=st.integers(0, 3),
    temperature=st.sampled_from([0.01, 0.05, 1.0, 10.0]),
    seed=st.integers(0, 10_000),
)
def test_any_matching_in_any_blocks_equals_the_dense_form(rows, extra, groups, block, hard, temperature, seed):
    generator = torch.Generator().manual_seed(seed)
    queries = F.normalize(torch.randn(rows, 4, generator=generator, dtype=torch.float64), dim=-1).requires_grad_()
    candidates = F.normalize(torch.randn(rows + extra, 4, generator=generator, dtype=torch.float64), dim=-1)
    candidates.requires_grad_()
    matching = Matching(
        torch.randint(rows + extra, (rows,), generator=generator),
        row_group_R=torch.randint(groups, (rows,), generator=generator),
        candidate_group_C=torch.randint(groups, (rows + extra,), generator=generator),
        hard_RH=torch.rand(rows, rows + extra, generator=generator).topk(min(hard, rows + extra)).indices,
        hard_logit=1.25,
    )
    expected = dense(queries, candidates, matching, temperature)
    expected_gradients = torch.autograd.grad(3.0 * expected, [queries, candidates])
    total, *_ = softmax_over_candidates(queries, candidates, matching, temperature=temperature, block_rows=block)
    gradients = torch.autograd.grad(3.0 * total, [queries, candidates])
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)
    for found, wanted in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("loss", [nt_xent, info_nce])
def test_autocast_does_not_change_loss_or_gradient(loss):
    found = []
    for autocast in (False, True):
        left, right = views(16, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            value = loss(left, right, temperature=0.05).loss
        value.backward()
        assert value.dtype == torch.float32
        found.append((value, left.grad, right.grad))
    for plain, mixed in zip(*found, strict=True):
        assert torch.equal(plain, mixed)


def test_an_easy_batch_keeps_its_small_loss_in_float32():
    """exp(-20) next to 1: as a difference of two logits of about 20, nothing of it would remain."""
    rows = torch.eye(4, dtype=torch.float32)
    found = nt_xent(rows, rows.clone(), temperature=0.05).loss.item()
    assert found == pytest.approx(math.log1p(6 * math.exp(-20.0)), rel=1e-4)


def test_accuracy_is_the_share_of_rows_whose_nearest_is_the_partner():
    left, noise = views(9, seed=3)
    right = left + 1.5 * noise
    rows = torch.cat([left, right]).tolist()
    hits = 0
    for i, row in enumerate(rows):
        scores = {k: cosine(row, rows[k]) for k in range(len(rows)) if k != i}
        hits += max(scores, key=scores.__getitem__) == (i + 9) % 18
    accuracy = nt_xent(left, right, temperature=0.1).accuracy
    assert 0 < hits < 18
    assert accuracy.item() == pytest.approx(hits / 18)
    assert not accuracy.requires_grad


BAD = [
    (lambda: nt_xent(torch.zeros(4, 8), torch.zeros(8, 8), temperature=0.1), r"\(8, 8\)"),
    (lambda: nt_xent(torch.zeros(4), torch.zeros(4), temperature=0.1), r"\(4,\)"),
    (
        lambda: info_nce(torch.ones(4, 8), torch.ones(4, 8), torch.ones(3, 8), temperature=1),
        r"\(3, 8\)",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
