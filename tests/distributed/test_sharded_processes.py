"""Weights sharded over 2 and 3 processes (trainer=fsdp): the step, the embeddings and the weights of one process."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from contrastive_encoders.encoders.sharding import full_tensor
from contrastive_encoders.evaluation.embedding_pool import embed_pool
from tests.distributed import steps
from tests.distributed.steps import assert_same_step
from tests.distributed.test_objective_processes import CASES, backbones, share  # noqa: F401  a fixture
from tests.objectives import built

STEPS = 2
REFUSED = ("tsdae", "4 bits")
ALIKE = ("simcse recomputed", "distil by prefixes, recomputed")  # their chunks are those of "sroberta recomputed"
# Their losses see only the embeddings, which "simcse triplets" and others with prefixes cover
ALIKE += ("cosent", "angle", "by kl", "nli by prefixes", "sroberta by prefixes", "simcse pairs", "in four directions")
SHARDED = {name: case for name, case in CASES.items() if not any(part in name for part in (*REFUSED, *ALIKE))}
TEXTS = ["A ferry.", "The clock was seen in a cold kitchen, and rain fell. " * 3]  # fewer than processes


def every_case(rank: int, world: int, encoder: str, decoder: str, cases: dict) -> dict:
    found = {}
    for name, (objective, options, batch_of) in cases.items():
        backbone = decoder if name.startswith("decoder") else encoder
        guide = {"guide": backbone} if "guide" in options else {}
        model = built(
            objective, backbone, **{"token_budget": 10**6, "activation_checkpointing": "off"} | options | guide
        ).eval()
        if "teacher" in options:
            model.learn_from_teacher(16, seed=5)
        batch = batch_of(model, rank, world)
        if world > 1:
            model.shard(init_device_mesh("cpu", (world,)))
        found[name] = trained(model, batch, rank, world)
    return found


def trained(model, batch, rank: int, world: int) -> tuple:
    """Return loss, metrics and gradient of the last of some steps, embeddings, trained weights, and all types."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    # With eps=1e-8, Adam amplifies gradients that are rounding noise, such as a key's bias
    optimizer = torch.optim.AdamW(weights, lr=1e-3, eps=1e-6, fused=True)
    for _ in range(STEPS):
        optimizer.zero_grad()
        outcome = model.training_step(batch, 0)
        outcome["loss"].backward()
        gradient = torch.cat([full_tensor(weight.grad).flatten() for weight in weights])
        optimizer.step()
    vectors = embed_pool(model.encoder, [TEXTS]).lookup(TEXTS)
    return (
        outcome["loss"].detach(),
        outcome["metrics"],
        gradient,
        vectors,
        torch.cat([full_tensor(one.detach()).flatten() for one in weights]),
        sorted(str(weight.dtype) for weight in model.parameters()),
    )


@pytest.fixture(scope="module")
def cases(request):
    return steps.selected(request, SHARDED)


@pytest.fixture(scope="module")
def alone(backbones, cases):  # noqa: F811
    return every_case(0, 1, *backbones, cases)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def together(request, backbones, cases, tmp_path_factory):  # noqa: F811
    return steps.together(every_case, request.param, tmp_path_factory.mktemp("ranks"), *backbones, cases)


@pytest.mark.rotates
@pytest.mark.parametrize("name", SHARDED)
def test_a_step_of_sharded_weights_is_that_of_one_process(name, alone, together):
    ranks = [rank[name] for rank in together]
    assert_same_step(alone[name], ranks)
    *_, vectors, weights, types = alone[name]
    for rank in ranks:
        torch.testing.assert_close(rank[3], vectors, rtol=1e-4, atol=1e-5)
        assert (rank[4] - weights).norm() <= 2e-6 * weights.norm()
        assert rank[5] == types, "what is held in 16 bits stays so"


def reductions(rank: int, world: int, backbone: str) -> dict:
    """Return how often the gradients of a module are reduced over processes in a step, with chunks of a size."""
    found = {}
    for budget in (10**6, 20):
        objective, options, batch_of = SHARDED["simcse triplets"]
        model = built(objective, backbone, **options, token_budget=budget, activation_checkpointing="off").eval()
        batch = batch_of(model, rank, world)
        model.shard(init_device_mesh("cpu", (world,)))
        with torch.profiler.profile() as profiler:
            model.training_step(batch, 0)["loss"].backward()
        names = [event.name for event in profiler.events()]
        found[budget] = sum(name.startswith("FSDP::post_backward_reduce") for name in names)
    return found


def test_gradients_are_added_up_once_a_step_in_any_number_of_chunks(backbones, tmp_path):  # noqa: F811
    for rank in steps.together(reductions, 2, tmp_path, backbones[0]):
        assert rank == {10**6: 3, 20: 3}  # two layers, and the modules outside of them
