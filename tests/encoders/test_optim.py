"""Expected rates follow from facts about the published runs: base 5e-5, cut 0.1, ratio 32, 497,868 documents."""

import math

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.optimizers import adamw, make_schedule, planned_steps

BASE, DOCUMENTS = 5e-5, 497_868
STEPS = DOCUMENTS // 16


def rate(name, step, *, total_steps=STEPS, epochs=1):
    schedule = make_schedule(
        name,
        total_steps=total_steps,
        steps_per_epoch=STEPS,
        epochs=epochs,
        instances=DOCUMENTS,
        warmup_ratio=0.1,
        ratio=32,
    )
    return BASE * schedule(step)


def test_slanted_triangle_over_the_real_steps():
    assert rate("slanted_triangular", 0) == pytest.approx(BASE / 32)
    assert rate("slanted_triangular", 3_111) == pytest.approx(BASE, rel=1e-3)
    assert rate("slanted_triangular", STEPS) == pytest.approx(1.5625e-6, rel=1e-3)


def test_the_paper_read_literally_ends_in_its_warm_up():
    assert rate("paper_literal", STEPS) == pytest.approx(3.2e-5, rel=0.02)
    assert rate("paper_literal", STEPS) > rate("paper_literal", STEPS - 1_000)


@pytest.mark.parametrize(("epochs", "constant"), [(1, 1.5625e-6), (3, 3.74e-5)])
def test_the_published_code_kept_one_rate_through_the_first_epoch(epochs, constant):
    for step in (100, 5_000, STEPS - 1):
        assert rate("official_code_bug", step, epochs=epochs, total_steps=epochs * STEPS) == pytest.approx(
            constant, rel=3e-3
        )


def test_the_published_code_follows_the_triangle_from_the_second_epoch_on():
    for step in (STEPS, 2 * STEPS, 3 * STEPS):
        literal = rate("slanted_triangular", step, total_steps=3 * STEPS)
        assert rate("official_code_bug", step, epochs=3, total_steps=3 * STEPS) == pytest.approx(literal)


@pytest.mark.parametrize("total", [7, 70, 3_437])
@pytest.mark.parametrize("fraction", [0.0, 0.1])
@pytest.mark.parametrize(("name", "first"), [("linear", 1), ("linear_from_zero", 0)])
def test_linear_is_transformers_own_but_for_a_first_step_that_counts(name, first, total, fraction):
    """Warm-up is rounded up, as sentence-transformers' fit() did; transformers begins with a step of rate 0."""
    weight = torch.nn.Parameter(torch.zeros(1))
    warm_up = math.ceil(total * fraction)
    theirs = get_linear_schedule_with_warmup(torch.optim.SGD([weight], lr=1.0), warm_up, total).lr_lambdas[0]
    ours = make_schedule(
        name, total_steps=total, steps_per_epoch=total, epochs=1, instances=1, warmup_ratio=fraction, ratio=32
    )
    for step in range(total + 1):
        assert ours(step) == pytest.approx(theirs(step + first if step < warm_up else step))


def test_vectors_are_not_decayed():
    layer = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    optimizer = adamw(
        layer,
        lr=0.1,
        weight_decay=0.3,
        betas=(0.9, 0.999),
        eps=1e-6,
        bias_correction=True,
        schedule=lambda step: 1.0,
        rates={},
    )["optimizer"]
    decayed = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decayed == {id(layer[0].weight): 0.3, id(layer[0].bias): 0, id(layer[1].weight): 0, id(layer[1].bias): 0}


def test_without_bias_correction_a_step_is_the_moments_as_they_are():
    """The update written out: p - lr * m / (sqrt(v) + eps), with weights decayed separately by lr * decay."""
    torch.manual_seed(0)
    weight = torch.nn.Linear(3, 2, bias=False).double()
    lr, decay, (b1, b2), eps = 0.01, 0.1, (0.9, 0.999), 1e-6
    optimizer = adamw(
        weight,
        lr=lr,
        weight_decay=decay,
        betas=(b1, b2),
        eps=eps,
        bias_correction=False,
        schedule=lambda step: 1.0,
        rates={},
    )["optimizer"]
    expected = weight.weight.detach().flatten().tolist()
    moment, square = [0.0] * 6, [0.0] * 6
    for step in range(5):
        gradient = torch.randn(2, 3, dtype=torch.float64)
        weight.weight.grad = gradient
        optimizer.step()
        for i, g in enumerate(gradient.flatten().tolist()):
            moment[i] = b1 * moment[i] + (1 - b1) * g
            square[i] = b2 * square[i] + (1 - b2) * g * g
            expected[i] = expected[i] * (1 - lr * decay) - lr * moment[i] / (math.sqrt(square[i]) + eps)
        assert weight.weight.flatten().tolist() == pytest.approx(expected, rel=1e-9), step
    assert optimizer.param_groups[0]["lr"] == lr


@pytest.mark.parametrize(
    ("max_steps", "max_epochs", "expected"), [(7, -1, 7), (-1, 3, 30), (7, 3, 7), (100, 3, 30), (7, None, 7)]
)
def test_a_run_ends_at_the_limit_that_comes_first(max_steps, max_epochs, expected):
    assert planned_steps(max_steps, max_epochs, steps_per_epoch=10) == expected


def test_a_schedule_needs_an_end():
    with pytest.raises(InputError) as error:
        planned_steps(-1, -1, steps_per_epoch=10)
    assert (error.value.key, error.value.value) == ("max_steps", -1)
