"""Distillation against sentence-transformers' classes, and against the equations written a row at a time."""

import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, EmbedDistillLoss, MarginMSELoss
from sentence_transformers.util import pairwise_cos_sim, pairwise_dot_score

from contrastive_encoders.losses.distillation import cosine_to, kl_of_scores, margin_mse, mse_to, similarity_scores

DRAWN = torch.Generator().manual_seed(3)


def drawn(*shape, scale=1.0):
    return (scale * torch.randn(*shape, generator=DRAWN)).requires_grad_()


@pytest.fixture(params=[1, 3], ids=["one negative", "three negatives"])
def rows(request):
    """Return anchors, each of the other texts, and a teacher's logits of them."""
    columns = 1 + request.param
    return drawn(6, 8), [drawn(6, 8) for _ in range(columns)], drawn(6, columns, scale=5.0).detach()


def same(found, wanted, inputs):
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    grads = [torch.autograd.grad(one, inputs) for one in (found, wanted)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("cosine", "similarity"), [(False, pairwise_dot_score), (True, pairwise_cos_sim)])
def test_margin_mse_is_the_librarys(rows, cosine, similarity):
    anchors, others, teacher = rows
    wanted = MarginMSELoss(None, similarity).compute_loss_from_embeddings([anchors, *others], teacher)
    found = margin_mse(similarity_scores(anchors, torch.stack(others, 1), cosine=cosine), teacher)
    same(found, wanted, [anchors, *others])


@pytest.mark.parametrize("temperature", [1.0, 0.3, 4.0])
def test_kl_is_the_librarys(rows, temperature):
    anchors, others, teacher = rows
    library = DistillKLDivLoss(None, pairwise_dot_score, temperature=temperature)
    wanted = library.compute_loss_from_embeddings([anchors, *others], teacher)
    found = kl_of_scores(
        similarity_scores(anchors, torch.stack(others, 1), cosine=False), teacher, temperature=temperature
    )
    same(found, wanted, [anchors, *others])


def test_the_equations_a_row_at_a_time(rows):
    anchors, others, teacher = rows
    ours = similarity_scores(anchors, torch.stack(others, 1), cosine=False).tolist()
    squares, divergences, temperature = [], [], 2.0
    for student, wanted in zip(ours, teacher.tolist(), strict=True):
        squares += [((student[0] - s) - (wanted[0] - t)) ** 2 for s, t in zip(student[1:], wanted[1:], strict=True)]
        p, q = ([math.exp(one / temperature) for one in of] for of in (wanted, student))
        p, q = ([one / sum(of) for one in of] for of in (p, q))
        divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    scores = torch.tensor(ours)
    assert margin_mse(scores, teacher).item() == pytest.approx(sum(squares) / len(squares), rel=1e-5)
    found = kl_of_scores(scores, teacher, temperature=temperature).item()
    assert found == pytest.approx(temperature**2 * sum(divergences) / len(divergences), rel=1e-4)


@pytest.mark.parametrize(("ours", "theirs"), [(cosine_to, "cosine"), (mse_to, "mse")])
def test_distances_of_vectors_are_the_librarys(ours, theirs):
    columns, teacher = [drawn(6, 8), drawn(6, 8)], [drawn(6, 8).detach(), drawn(6, 8).detach()]
    library = EmbedDistillLoss(None, distance_metric=theirs)
    same(ours(torch.cat(columns), torch.cat(teacher)), library.compute_loss_from_embeddings(columns, teacher), columns)


def test_half_precision_is_widened_first():
    """The margins of 16-bit logits would be rounded."""
    scores, teacher = drawn(6, 4, scale=30.0).detach(), drawn(6, 4, scale=30.0).detach()
    for loss in (margin_mse, lambda *both: kl_of_scores(*both, temperature=1.0)):
        found = loss(scores.bfloat16(), teacher.bfloat16())
        assert found.dtype == torch.float32
        assert found == loss(scores.bfloat16().float(), teacher.bfloat16().float())
