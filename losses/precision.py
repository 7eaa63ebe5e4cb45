"""Precision of losses: at least float32, regardless of the trainer's precision."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert a half-precision tensor to float32. Return a float32 or float64 tensor unchanged."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
