"""GenSE's step on 2 processes and on one: loss, metrics, gradient, and the weights after steps of Adafactor."""

import numpy as np
import pytest
import torch

from contrastive_encoders.core import Ragged, TripletBatch
from contrastive_encoders.encoders.loading.tiny import write_tiny_t5
from contrastive_encoders.encoders.optimizers import adafactor
from tests.distributed.steps import assert_same_step, selected, stepped, stepping, together
from tests.objectives import SIZES, built

NOUNS = ["ferry", "violin", "ferry", "clock", "ferry", "choir"]
LEFT = [f"The {noun} was seen." for noun in NOUNS]
RIGHT = [f"Somebody saw the {noun}" + " again" * number for number, noun in enumerate(NOUNS)]
THIRD = [f"No {noun} in a cold kitchen" for noun in NOUNS]
GROUPS = torch.tensor([3, 1, 3, 2, 3, 0])
CASES = {
    "first_decoder": {"hard_negative_weight": 1.0},
    "recomputed": {"token_budget": 30, "activation_checkpointing": "on"},
    "mean": {"pooling": "mean", "exclude_equal_texts": False},
    "pairs": {"prompt_suffix": None},
}


def batch_of(model, rank, world, columns):
    tokenizer = model.encoder.tokenizer
    made = []
    for column in columns:
        rows = tokenizer(column[rank::world])["input_ids"]
        made.append(Ragged(torch.tensor([one for row in rows for one in row]), np.array([len(row) for row in rows])))
    return TripletBatch(made[0], made[1], made[2] if len(made) > 2 else None, GROUPS[rank::world], np.arange(6))


def every_case(rank, world, backbone, cases):
    found = {}
    for name, options in cases.items():
        columns = [LEFT, RIGHT] if name == "pairs" else [LEFT, RIGHT, THIRD]
        defaults = {
            "prompt_suffix": " Question: what is it?",
            "temperature": 0.5,
            "token_budget": 10**6,
            "activation_checkpointing": "off",
        }
        model = built("gense", backbone, **(defaults | options)).eval()
        step = stepping(model, world)
        optimizer = adafactor(model, lr=1e-3, weight_decay=0.0, schedule=lambda step: 1.0, scaled=False, rates={})[
            "optimizer"
        ]
        outcomes = []
        for _ in range(3):
            optimizer.zero_grad()
            outcomes.append(stepped(step, batch_of(model, rank, world, columns)))
            optimizer.step()
        found[name] = (*outcomes[0], outcomes[-1][0], torch.cat([w.detach().flatten() for w in model.parameters()]))
    return found


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    cases = selected(request, CASES)
    folder = tmp_path_factory.mktemp("ranks")
    backbone = folder / "backbone"
    write_tiny_t5(backbone, iter([*LEFT, *RIGHT, *THIRD]), seed=3, dropout=0.1, lowercase=True, **SIZES)
    return every_case(0, 1, str(backbone), cases), together(every_case, 2, folder, str(backbone), cases)


@pytest.mark.rotates
@pytest.mark.parametrize("name", CASES)
def test_a_step_does_not_depend_on_the_number_of_processes(name, outcomes):
    alone, together = outcomes
    _, _, _, last, weights = alone[name]
    assert_same_step(alone[name], [rank[name] for rank in together])
    for rank in together:
        assert (rank[name][4] - weights).norm() <= 1e-4 * weights.norm()
    torch.testing.assert_close(torch.stack([rank[name][3] for rank in together]).mean(), last, rtol=1e-3, atol=1e-4)
