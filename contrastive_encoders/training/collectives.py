"""Reductions of a few numbers over all ranks.

Every function is a collective operation: all ranks must call it at the same point. With one process it returns its
input. The numbers are exchanged between the hosts and not the GPUs, whose communication would first wait for all queued
work.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from contrastive_encoders.core.runtime.process_group import group_ranks

# the process group of the ranks, and its host counterpart
_hosts: tuple[dist.ProcessGroup | None, dist.ProcessGroup | None] = (None, None)


def maximum(values: Sequence[float]) -> list[float]:
    """Return the maximum of each value over the ranks. Every rank gets the same list."""
    return _reduce(values, dist.ReduceOp.MAX)


def total(values: Sequence[float]) -> list[float]:
    """Return the sum of each value over the ranks. Every rank gets the same list, which is exact for integers below
    2**53.
    """
    return _reduce(values, dist.ReduceOp.SUM)


def _reduce(values: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
    if group_ranks().world == 1:
        return [float(value) for value in values]
    packed = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(packed, op=operation, group=_between_hosts())
    return packed.tolist()


def _between_hosts() -> dist.ProcessGroup | None:
    """Return a gloo process group of all ranks, for data in host memory; None if the default process group already uses
    gloo. All ranks create the group together, at the first call.
    """
    global _hosts
    if dist.get_backend() == dist.Backend.GLOO:
        return None
    if _hosts[0] is not dist.group.WORLD:
        _hosts = dist.group.WORLD, dist.new_group(backend=dist.Backend.GLOO)
    return _hosts[1]
