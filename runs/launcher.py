"""Processes that torchrun or srun started side by side: how many there are, and what rank 0 decides for all of them.

Lightning's own children need none of this: they start when rank 0 has decided already.
"""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch.distributed as dist
from pytorch_lightning.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.utilities import rank_zero_only

from contracts import InputError

T = TypeVar("T")


class Launched(NamedTuple):
    """How many processes somebody else has started."""

    processes: int
    per_node: int


def launched() -> Launched | None:
    """None where this process was started alone, or by Lightning."""
    environment = _environment()
    if environment is None or environment.world_size() == 1:
        return None
    processes = environment.world_size()
    if isinstance(environment, TorchElasticEnvironment):
        return Launched(processes, int(os.environ["LOCAL_WORLD_SIZE"]))
    return Launched(processes, processes // int(os.environ.get("SLURM_NNODES", "1")))


def from_rank_zero(decide: Callable[[bool], T]) -> T:
    """What ``decide(True)`` returns on rank 0, on all ranks; they wait for it. Alone, ``decide`` is told the rank.

    Raises:
        InputError: ``decide`` raised it, on rank 0; the other ranks leave with status 2 and let rank 0 say why.
    """
    environment = _environment()
    if environment is None or environment.world_size() == 1:
        return decide(rank_zero_only.rank == 0)
    rank = environment.global_rank()
    _join(environment)
    answer: list[T | InputError | None] = [None]
    if rank == 0:
        try:
            answer = [decide(True)]
        except InputError as error:
            answer = [error]
    dist.broadcast_object_list(answer)
    dist.destroy_process_group()
    if not isinstance(answer[0], InputError):
        return answer[0]  # type: ignore[return-value]
    if rank == 0:
        raise answer[0]
    sys.exit(2)


def _environment() -> ClusterEnvironment | None:
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    return SLURMEnvironment() if SLURMEnvironment.detect() and "SLURM_PROCID" in os.environ else None


def _join(environment: ClusterEnvironment) -> None:
    if isinstance(environment, TorchElasticEnvironment):
        dist.init_process_group("gloo")
        return
    # the next port: Lightning opens its own store on main_port a moment later
    address = f"tcp://{environment.main_address}:{environment.main_port + 1}"
    dist.init_process_group(
        "gloo", init_method=address, rank=environment.global_rank(), world_size=environment.world_size()
    )
