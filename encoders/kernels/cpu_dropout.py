"""Dropout on a CPU from 16 random bits per element.

torch draws one random number per element with ``bernoulli_``, which takes a fifth of a training step in bfloat16. Here,
four elements share a random number of 64 bits, and the probability is rounded to a multiple of 1/65,536.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrastive_encoders.encoders.kernels.onednn_layers import replaced

LEVELS = 1 << 16


@contextlib.contextmanager
def fast_dropouts(module: nn.Module) -> Iterator[None]:
    """Context manager that draws 16 random bits per element in the plain ``nn.Dropout`` layers of ``module``, on a CPU
    and with gradients enabled.

    Other devices and inference are not changed, nor is dropout inside attention, as in BERT and T5; for packed
    sequences, see `dropout_attention`.
    """
    helps = torch.is_grad_enabled() and next(module.parameters(), torch.empty(0)).is_cpu
    layers = [one for one in module.modules() if type(one) is nn.Dropout and not one.inplace] if helps else []
    with replaced(layers, _dropout_of):
        yield


def _dropout_of(layer: Any) -> Callable[[Tensor], Tensor]:
    def forward(input: Tensor) -> Tensor:  # the name of the argument of nn.Dropout
        dropped = dropped_levels(layer.p)
        if not input.is_cpu or not 0 < dropped < LEVELS or not layer.training:
            return F.dropout(input, layer.p, layer.training)
        return input * dropout_factors(input, dropped)

    return forward


def dropped_levels(p: float) -> int:
    """Round a dropout probability to a multiple of 1 / `LEVELS`, and return this multiple, or 0 if ``p`` is not between
    0 and 1.
    """
    return round(p * LEVELS) if 0 < p < 1 else 0


def dropout_factors(x: Tensor, dropped: int, generator: torch.Generator | None = None, *, parts: int = 1) -> Tensor:
    """Return dropout factors with the shape and type of ``x``. With p = ``dropped / LEVELS``, a factor is 0 with
    probability p, and 1 / (1 - p) otherwise.

    Args:
        x: Tensor that is multiplied by the factors.
        dropped: See `dropped_levels`.
        generator: Source of the random numbers; None: torch's global generator.
        parts: Number of equal parts of ``x``. Each part draws its own numbers, so the factors of n parts in one call
            equal those of n calls with one part each.
    """
    size = x.numel() // parts
    numbers = torch.empty(parts, -(-size // 4), dtype=torch.int64, device=x.device)
    bits = numbers.random_(-(1 << 63), None, generator=generator).view(torch.int16)[:, :size]
    factors = x.new_empty(x.shape)
    torch.ge(bits, dropped - LEVELS // 2, out=factors.view(parts, size))
    return factors.mul_(LEVELS / (LEVELS - dropped))
