"""Operations that gather and reduce tensors over ranks, with and without gradients. Only this module uses the world
size in losses.

One convention makes every loss independent of the number of processes: each rank returns a value whose MEAN over ranks
is the single-process value. Averaging gradients over ranks, as DDP does, then gives the single-process gradient. A mean
over rows satisfies the convention if every rank has equally many rows.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def ranks() -> tuple[int, int]:
    """Return the rank of this process and the number of processes, which is 1 if there is no process group."""
    together = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if together else (0, 1)


def world_size() -> int:
    """Return the number of processes in the process group, or 1 if there is no process group."""
    return ranks()[1]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_RD: Tensor) -> Tensor:
        ctx.num_rows = len(rows_RD)
        return gather_plain(rows_RD)

    @staticmethod
    def backward(ctx: Any, grad_CD: Tensor) -> Tensor:
        total_CD = grad_CD.clone(memory_format=torch.contiguous_format)  # all_reduce writes in place
        dist.all_reduce(total_CD)  # this rank's rows were candidates in every rank's loss
        start = dist.get_rank() * ctx.num_rows
        return total_CD[start : start + ctx.num_rows]


def gather_rows(rows_RD: Tensor) -> tuple[Tensor, int]:
    """Concatenate the rows of all ranks in rank order, with gradients. Also return the start index of this rank's rows.

    Every rank must have the same number of rows. Outside a process group, this is the identity.
    """
    if world_size() == 1:
        return rows_RD, 0
    return _GatherRows.apply(rows_RD), dist.get_rank() * len(rows_RD)


def gather_plain(values: Tensor) -> Tensor:
    """Concatenate tensors of equal shape from all ranks along dimension 0, in rank order, without gradients."""
    values = values.detach().contiguous()
    if world_size() == 1:
        return values
    shards = [torch.empty_like(values) for _ in range(world_size())]
    dist.all_gather(shards, values)
    return torch.cat(shards)


def as_sum_over_ranks(value: Tensor) -> Tensor:
    """Multiply a value by the world size, so that the mean of the results over all ranks is the sum of the values."""
    return value * world_size()


def global_mean(value: Tensor, count: int | Tensor) -> Tensor:
    """Return this rank's contribution to a mean over the items of all ranks; the number of items may differ between
    ranks.

    Items are tokens, for example. ``value`` is the sum over this rank's ``count`` items. The mean of the return values
    over ranks is the sum over all items divided by their number. If no rank has any item, the result is 0, with a
    gradient path.
    """
    # adding a Python number to a tensor on the device needs no synchronization, in contrast to copying it there
    total = torch.zeros((), dtype=torch.int64, device=value.device) + count
    if world_size() > 1:
        dist.all_reduce(total)
    return as_sum_over_ranks(value) / total.clamp(min=1)


def divide_gradient_by_world_size(loss: Tensor) -> Tensor:
    """Divide the gradient of a loss by the world size, without changing its value.

    This is the gradient of published code (DeCLUTR with ``scale_fix=false``, SimCSE, GenSE): every rank computes the
    loss of the global batch, but only this rank's rows have gradients, and DDP then divides by the number of ranks.
    """
    return loss.detach() + (loss - loss.detach()) / world_size()
