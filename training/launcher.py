"""Processes that torchrun or srun started side by side: how many there are, and what rank 0 decides for all of them.

Lightning's own children need none of this: they start when rank 0 has decided already.
"""

import atexit
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist
from pytorch_lightning.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.utilities import rank_zero_only

TO_CONNECT = timedelta(minutes=5)  # beyond it the address is wrong, as with torchrun --master-port 0
_decisions = itertools.count()  # all ranks ask for the same ones, in the same order
LONGEST_WAIT = timedelta(days=7)  # rank 0 may have to read a whole corpus, or to write triplets for a domain


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


def leave_group_at_exit() -> None:
    """Lightning does so for NCCL alone; a group of gloo that is still there when the interpreter ends can abort it."""
    atexit.register(_leave_group)


def _leave_group() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def from_rank_zero(decide: Callable[[bool], Sequence[Any]]) -> Sequence[Any]:
    """What ``decide(True)`` returns on rank 0, on all ranks; they wait for it. Alone, ``decide`` is told the rank.

    The values must be JSON's.

    Raises:
        InputError: ``decide`` raised it, on rank 0; the other ranks leave with status 2 and let rank 0 say why.
    """
    if dist.is_available() and dist.is_initialized():  # a stage of this run has trained already
        return _from_rank_zero_of_the_group(decide)
    environment = _environment()
    if environment is None or environment.world_size() == 1:
        return decide(rank_zero_only.rank == 0)  # type: ignore[attr-defined]  # Lightning sets it
    store, others = _store(), range(1, environment.world_size())
    count = next(_decisions)
    if environment.global_rank() > 0:
        answer = json.loads(store.get(f"decided {count}"))
        store.set(f"{count} read by {environment.global_rank()}", "yes")
        return answer if answer is not None else sys.exit(2)
    answer = None
    try:
        answer = list(decide(True))
        return answer
    finally:  # before this process, which may hold the store, goes on or ends
        store.set(f"decided {count}", json.dumps(answer))
        store.wait([f"{count} read by {rank}" for rank in others])


def _from_rank_zero_of_the_group(decide: Callable[[bool], Sequence[Any]]) -> Sequence[Any]:
    answer: list[Any] = [None]
    if dist.get_rank() > 0:
        dist.broadcast_object_list(answer)
        return answer[0] if answer[0] is not None else sys.exit(2)
    try:
        answer = [list(decide(True))]
        return answer[0]
    finally:
        dist.broadcast_object_list(answer)


def _environment() -> ClusterEnvironment | None:
    if TorchElasticEnvironment.detect():
        return TorchElasticEnvironment()
    return SLURMEnvironment() if SLURMEnvironment.detect() and "SLURM_PROCID" in os.environ else None


@functools.cache  # one for all decisions: a server that closed between two would cut off whoever is early
def _store() -> dist.Store:
    """A place to meet before there is a process group.

    A group made here and dissolved again would leave its addresses in torchrun's store, and Lightning's would take them
    for its own.
    """
    environment = _environment()
    assert environment is not None
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        environment.main_address,
        environment.main_port if by_agent else environment.main_port + 1,  # main_port is where Lightning's will be
        environment.world_size(),
        is_master=not by_agent and environment.global_rank() == 0,
        timeout=TO_CONNECT,
        wait_for_workers=False,
    )
    store.set_timeout(LONGEST_WAIT)
    return dist.PrefixStore(f"contrastive-encoders/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
