"""Small numbers that all ranks agree on, or that are summed over ranks.

Every function is a collective: all ranks call it at the same place. With one process each returns what it was given.
The numbers go from host to host, beside the GPUs: their own network would first finish all that was given to them.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

_hosts: tuple[dist.ProcessGroup | None, dist.ProcessGroup | None] = (None, None)  # of the ranks' own group, and it


def maximum(values: Sequence[float]) -> list[float]:
    """The largest of each value over the ranks, the same list on every rank."""
    return _reduce(values, dist.ReduceOp.MAX)


def total(values: Sequence[float]) -> list[float]:
    """The sum of each value over the ranks, the same list on every rank; exact for counts below 2**53."""
    return _reduce(values, dist.ReduceOp.SUM)


def processes() -> int:
    """How many ranks take part."""
    return dist.get_world_size() if _distributed() else 1


def _reduce(values: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
    if not _distributed():
        return [float(value) for value in values]
    packed = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(packed, op=operation, group=_between_hosts())
    return packed.tolist()


def _between_hosts() -> dist.ProcessGroup | None:
    """A group of all ranks that exchanges what lies in memory of the host; made once, by all."""
    global _hosts
    if dist.get_backend() == dist.Backend.GLOO:
        return None
    if _hosts[0] is not dist.group.WORLD:
        _hosts = dist.group.WORLD, dist.new_group(backend=dist.Backend.GLOO)
    return _hosts[1]


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
