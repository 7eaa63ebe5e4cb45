"""Backbones without their weights, for processes that get theirs when the model is sharded.

Rank 0 loads a backbone and sends every rank its part (`encoders.sharding.shard`). What the others load says what the
model is made of, and is forgotten: nothing of a safetensors file is read, and no host holds the model once a process.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import nn

from contrastive_encoders.compat import raw_parameters

_absent = ContextVar("absent", default=False)


@contextlib.contextmanager
def absent_weights(absent: bool) -> Iterator[None]:
    """Inside, backbones to train are loaded without their weights if ``absent``."""
    before = _absent.set(absent)
    try:
        yield
    finally:
        _absent.reset(before)


def dtype_to_load() -> torch.dtype | str:
    """In which type to load a backbone: that of its file, whose bytes are then mapped and not read, if it is to be
    without weights.
    """
    return "auto" if _absent.get() else torch.float32


def forget_weights(transformer: nn.Module) -> None:
    """Turn all weights into float32 ones on the meta device, in place, if they are to be absent. Shared ones stay
    shared, and buffers what they are.
    """
    if not _absent.get():
        return
    kept: dict[nn.Parameter, nn.Parameter] = {}
    for module in transformer.modules():
        parameters = raw_parameters(module)
        for name, weight in parameters.items():
            if weight is not None:
                empty = torch.empty(weight.shape, dtype=torch.float32, device="meta")
                parameters[name] = kept.setdefault(weight, nn.Parameter(empty, weight.requires_grad))
