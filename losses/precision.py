"""Precision of losses: at least float32, regardless of the trainer's precision."""

import torch
from torch import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert half precision to float32; float32 and float64 stay."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
