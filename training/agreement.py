"""A few numbers that all ranks must agree on, or that are added up over ranks.

Every function is a collective: all ranks call it at the same place. With one process each returns what it was given.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def maximum(values: Sequence[float], device: torch.device) -> list[float]:
    """The largest of each value over the ranks, the same list on every rank."""
    return _reduce(values, device, dist.ReduceOp.MAX)


def total(values: Sequence[float], device: torch.device) -> list[float]:
    """The sum of each value over the ranks, the same list on every rank; exact for counts below 2**53."""
    return _reduce(values, device, dist.ReduceOp.SUM)


def processes() -> int:
    """How many ranks take part."""
    return dist.get_world_size() if _distributed() else 1


def _reduce(values: Sequence[float], device: torch.device, operation: dist.ReduceOp.RedOpType) -> list[float]:
    if not _distributed():
        return [float(value) for value in values]
    packed = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(packed, op=operation)
    return packed.tolist()


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
