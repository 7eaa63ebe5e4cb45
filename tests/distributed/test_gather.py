"""Several processes against one: value, size and direction of the gradient that DDP would apply."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.angle import angle
from contrastive_encoders.losses.contrastive import ContrastiveOutput, Guide, info_nce, nt_xent
from contrastive_encoders.losses.cosent import cosent
from contrastive_encoders.losses.cross_entropy import masked_lm_sum
from contrastive_encoders.losses.directions import DIRECTIONS, contrast_in_directions
from contrastive_encoders.losses.gather import gather_plain, gather_rows, global_mean
from contrastive_encoders.losses.metric_learning import metric_loss
from tests.distributed import steps

PAIRS = 6  # splits over 1, 2 and 3 ranks
PREDICTED = {"uneven": {1: [5], 2: [4, 1], 3: [3, 0, 2]}, "none": {1: [0], 2: [0, 0], 3: [0, 0, 0]}}


class Result(NamedTuple):
    value: Tensor  # mean over ranks of what the loss returned
    gradient: Tensor  # mean over ranks of the weight's gradient, as DDP averages it


def published(left: Tensor, right: Tensor) -> Tensor:
    """Compute what DeCLUTR's code computes with scale_fix=false: the global batch with a gradient in one slice."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    gathered = []
    for view in (left, right):
        everyone = list(gather_plain(view).split(len(view)))
        everyone[rank] = view
        gathered.append(torch.cat(everyone))
    rows = F.normalize(torch.cat(gathered), dim=-1)
    logits = (rows @ rows.T / 0.1).masked_fill(torch.eye(len(rows), dtype=torch.bool), -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(rows)).roll(len(rows) // 2))


def own_groups() -> Tensor:
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    return torch.tensor([0, 1, 0, 2, 1, 0]).chunk(world)[rank]


def own_scores() -> Tensor:
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    return torch.tensor([0.1, 0.9, 0.5, 0.5, 1.0, 0.0]).chunk(world)[rank]


def two_hard(anchors: Tensor, positives: Tensor, third: Tensor) -> ContrastiveOutput:
    negatives = torch.stack([third, third.flip(1)], 1).flatten(0, 1)
    return info_nce(anchors, positives, negatives, temperature=0.1, hard_negative_weight=0.8, groups=own_groups())


def in_directions(anchors: Tensor, positives: Tensor, third: Tensor, **options: object) -> ContrastiveOutput:
    return contrast_in_directions(anchors, positives, third, temperature=0.1, **options)


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "nt_xent": lambda a, b, c: nt_xent(a, b, temperature=0.1).loss,
    "nt_xent sum": lambda a, b, c: nt_xent(a, b, temperature=0.1, reduction="sum").loss,
    "nt_xent paper": lambda a, b, c: nt_xent(a, b, temperature=0.1, scale="per_rank").loss,
    "nt_xent sum paper": lambda a, b, c: nt_xent(a, b, temperature=0.1, reduction="sum", scale="per_rank").loss,
    "published": lambda a, b, c: published(a, b),
    "info_nce": lambda a, b, c: info_nce(a, b, temperature=0.1).loss,
    "info_nce hard": lambda a, b, c: info_nce(a, b, c, temperature=0.1, hard_negative_weight=0.8).loss,
    "info_nce groups": lambda a, b, c: info_nce(a, b, c, temperature=0.1, groups=own_groups()).loss,
    "nt_xent guided": lambda a, b, c: nt_xent(a, b, temperature=0.1, guide=Guide([b.detach(), c.detach()])).loss,
    "info_nce guided": lambda a, b, c: info_nce(a, b, c, temperature=0.1, guide=Guide([c, a, b])).loss,
    "excluded negatives": lambda a, b, c: (
        nt_xent(a, b, temperature=0.1, guide=Guide([b, c])).excluded_negatives + 0 * a.sum()
    ),
    "info_nce two hard": lambda a, b, c: two_hard(a, b, c).loss,
    "four directions": lambda a, b, c: in_directions(a, b, c, directions=DIRECTIONS).loss,
    "four directions, groups": lambda a, b, c: in_directions(a, b, c, directions=DIRECTIONS, groups=own_groups()).loss,
    "four directions, guided": lambda a, b, c: (
        in_directions(a, b, c, directions=DIRECTIONS, guide=Guide([c.detach(), a.detach(), b.detach()])).loss
    ),
    "cosent": lambda a, b, c: cosent(a, b, own_scores(), temperature=0.1),
    "angle": lambda a, b, c: angle(a, b, own_scores(), temperature=0.1),
    "symmetric": lambda a, b, c: in_directions(a, b, c, directions=DIRECTIONS[:2], partition_mode="per_direction").loss,
    "accuracy": lambda a, b, c: nt_xent(a, b, temperature=0.1).accuracy + 0 * a.sum(),
    "NTXentLoss": lambda a, b, c: metric_loss("NTXentLoss", temperature=0.1)(a, b),
    "mined": lambda a, b, c: metric_loss("TripletMarginLoss", "MultiSimilarityMiner")(a, b),
    "NPairsLoss": lambda a, b, c: metric_loss("NPairsLoss")(a, b),
    "gathered": lambda a, b, c: (gather_rows(a)[0] ** 3).sum(),
}


def embed(views: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    weight = torch.eye(5, 7, dtype=torch.float64).requires_grad_()
    return weight, [view @ weight.T for view in views]


def averaged(loss: Tensor, weight: Tensor) -> Result:
    loss.backward()
    value, gradient = loss.detach().clone(), weight.grad.clone()
    if dist.is_initialized():
        for tensor in (value, gradient):
            dist.all_reduce(tensor)
            tensor /= dist.get_world_size()
    return Result(value, gradient)


def every_loss(rank: int, world: int) -> dict[str, Result]:
    batch = torch.randn(3, PAIRS, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = {}
    for name, loss in LOSSES.items():
        weight, views = embed([view.chunk(world)[rank] for view in batch])
        found[name] = averaged(loss(*views), weight)
    for name, counts in PREDICTED.items():
        ends = list(itertools.accumulate(counts[world], initial=0))
        weight, (logits,) = embed([batch[0, ends[rank] : ends[rank + 1]]])
        labels = torch.arange(PAIRS)[ends[rank] : ends[rank + 1]] % 5
        found[f"global_mean {name}"] = averaged(global_mean(masked_lm_sum(logits, labels), len(labels)), weight)
    return found


def every_loss_and_order(rank: int, world: int) -> dict[str, tuple[Tensor, Tensor]]:
    shape = torch.arange(2 * rank, 2 * rank + 2).view(2, 1)
    order = gather_rows(shape.double())[0], torch.tensor(gather_rows(shape)[1])
    return {name: tuple(result) for name, result in every_loss(rank, world).items()} | {"order": order}


@pytest.fixture(scope="module")
def alone() -> dict[str, Result]:
    return every_loss(0, 1)


@pytest.fixture(scope="module", params=[2, 3])
def together(request, tmp_path_factory) -> list[dict[str, Result]]:
    ranks = steps.together(every_loss_and_order, request.param, tmp_path_factory.mktemp("ranks"))
    return [{name: Result(*result) for name, result in found.items()} for found in ranks]


EXACT = [name for name in LOSSES if "paper" not in name and name not in ("published", "gathered")]


@pytest.mark.parametrize("name", [*EXACT, "global_mean uneven"])
def test_value_and_gradient_do_not_depend_on_the_number_of_processes(name, alone, together):
    for found in together:
        torch.testing.assert_close(found[name].value, alone[name].value, rtol=1e-6, atol=0)
        distance = (found[name].gradient - alone[name].gradient).norm()
        assert distance <= 1e-6 * alone[name].gradient.norm()
        assert name in ("accuracy", "excluded negatives") or alone[name].gradient.norm() > 1e-3


@pytest.mark.parametrize("name", ["nt_xent", "nt_xent sum"])
def test_paper_scale_divides_the_gradient_by_the_world_size_and_keeps_the_value(name, together):
    for found in together:
        exact, paper = found[name], found[f"{name} paper"]
        torch.testing.assert_close(paper.value, exact.value, rtol=0, atol=0)
        torch.testing.assert_close(paper.gradient, exact.gradient / len(together), rtol=1e-12, atol=1e-15)


def test_paper_scale_is_what_the_published_code_computes(alone, together):
    for found in (alone, *together):
        torch.testing.assert_close(found["nt_xent paper"].value, found["published"].value, rtol=1e-9, atol=0)
        torch.testing.assert_close(found["nt_xent paper"].gradient, found["published"].gradient, rtol=1e-9, atol=1e-12)


def test_the_sum_is_the_mean_times_all_rows(alone, together):
    for found in (alone, *together):
        torch.testing.assert_close(found["nt_xent sum"].gradient, 2 * PAIRS * found["nt_xent"].gradient)


def test_the_mean_over_tokens_is_the_plain_mean(alone):
    batch = torch.randn(3, PAIRS, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weight, (logits,) = embed([batch[0, :5]])
    expected = averaged(F.cross_entropy(logits, torch.arange(5)), weight)
    torch.testing.assert_close(alone["global_mean uneven"].value, expected.value, rtol=1e-9, atol=0)
    torch.testing.assert_close(alone["global_mean uneven"].gradient, expected.gradient, rtol=1e-9, atol=1e-12)


def test_a_mean_over_nothing_is_zero_with_a_zero_gradient(alone, together):
    for found in (alone, *together):
        assert found["global_mean none"].value == 0
        assert not found["global_mean none"].gradient.any()


def test_rows_stand_in_rank_order_and_each_rank_knows_its_place(together):
    for rank, found in enumerate(together):
        rows, start = found["order"]
        assert rows.flatten().tolist() == list(range(2 * len(together)))
        assert start == 2 * rank


def test_every_ranks_loss_reaches_the_rows_it_gathered(alone, together):
    """Each of W ranks sums the cubes of all rows; the average over ranks is the single-process gradient once."""
    for found in together:
        torch.testing.assert_close(found["gathered"].gradient, alone["gathered"].gradient)
