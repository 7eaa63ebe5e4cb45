"""CoSENT and AnglE against sentence-transformers' classes, and against the equation written term by term."""

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import AnglELoss, CoSENTLoss

from contrastive_encoders.losses.angle import angle
from contrastive_encoders.losses.cosent import cosent

LOSSES = {"cosent": (cosent, CoSENTLoss), "angle": (angle, AnglELoss)}


def pairs(width: int, count: int = 7) -> list[torch.Tensor]:
    drawn = torch.randn(2, count, width, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    return [view.clone().requires_grad_() for view in drawn]


@pytest.mark.parametrize("width", [8, 5])
@pytest.mark.parametrize("scores", [[0.1, 0.9, 0.5, 0.5, 1.0, 0.0, 0.3], [0.5] * 7, [0.0, 1.0] * 3 + [1.0]])
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_are_the_librarys(name, scores, width):
    ours, theirs = LOSSES[name]
    views, gold = pairs(width), torch.tensor(scores)
    expected = theirs(None, scale=20.0).compute_loss_from_embeddings(views, gold)
    wanted = torch.autograd.grad(expected, views)
    found = ours(*views, gold, temperature=0.05)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    for one, other in zip(torch.autograd.grad(found, views), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_mismatched_shapes_are_refused(name):
    left, right = pairs(4)
    for one, other, scores in ((left, right[:3], 7), (left, right, 3), (left[:0], right[:0], 0)):
        with pytest.raises(ValueError, match=rf"^{name} "):
            LOSSES[name][0](one, other, torch.zeros(scores), temperature=0.05)
