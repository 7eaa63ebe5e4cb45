"""Load backbones without weights, for processes that receive the weights when the model is sharded.

Rank 0 loads a backbone and sends every rank its part (`encoders.sharding.shard`). The other ranks need only the
structure of the model, and drop its weights: no data of a safetensors file is read, and no host has one copy of the
model per process.
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
    """Context manager in which backbones for training are loaded without their weights if ``absent`` is True."""
    before = _absent.set(absent)
    try:
        yield
    finally:
        _absent.reset(before)


def dtype_to_load() -> torch.dtype | str:
    """Return the dtype in which a backbone is loaded.

    Inside `absent_weights`, it is the dtype of the file, which is then memory-mapped and not read.
    """
    return "auto" if _absent.get() else torch.float32


def forget_weights(transformer: nn.Module) -> None:
    """Inside `absent_weights`, replace all weights by float32 weights on the meta device, in place.

    Tied weights remain tied, and buffers are not changed.
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
