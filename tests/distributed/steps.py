"""Results of ``every_case(rank, world, *given)`` of a test on each of several processes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def selected(request: pytest.FixtureRequest, cases: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cases of which this session has a test in the file of the fixture."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    names = {item.callspec.params.get("name") for item in items}
    return {name: case for name, case in cases.items() if name in names}


def together(every_case: Callable, world: int, folder: Path, *given: object) -> list:
    mp.start_processes(_process, args=(every_case, world, folder, given), nprocs=world, start_method="fork")
    return [torch.load(folder / f"{world}-{rank}.pt", weights_only=True) for rank in range(world)]


def _process(rank: int, every_case: Callable, world: int, folder: Path, given: tuple) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet{world}", rank=rank, world_size=world)
    torch.save(every_case(rank, world, *given), folder / f"{world}-{rank}.pt")
    dist.destroy_process_group()


def stepping(model: torch.nn.Module, world: int) -> torch.nn.Module:
    """Module that makes the training step of this model if it is called with a batch."""
    return DistributedDataParallel(Step(model)) if world > 1 else Step(model)


class Step(torch.nn.Module):
    """Wrapper for the step, because DDP averages only what goes through ``forward``."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        return self.model.training_step(batch, 0)


def stepped(step: torch.nn.Module, batch: object) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
    """Return loss, metrics and the gradient of all weights, as DDP averages it."""
    outcome = step(batch)
    outcome["loss"].backward()
    return (
        outcome["loss"].detach(),
        outcome["metrics"],
        torch.cat([weight.grad.flatten() for weight in step.parameters() if weight.requires_grad]),
    )


def assert_same_step(alone: Sequence[Any], ranks: Sequence[Sequence[Any]]) -> None:
    """Assert that the results of `stepped` on one process and on each of several are equal."""
    loss, metrics, gradient = alone[:3]
    torch.testing.assert_close(torch.stack([rank[0] for rank in ranks]).mean(), loss, rtol=1e-5, atol=1e-6)
    for metric, value in metrics.items():
        found = torch.stack([rank[1][metric] for rank in ranks]).mean()
        torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)
    assert gradient.norm() > 1e-3
    for rank in ranks:
        assert (rank[2] - gradient).norm() <= 2e-4 * gradient.norm()
