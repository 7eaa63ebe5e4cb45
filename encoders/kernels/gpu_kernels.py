"""Attention and the product with the vocabulary on a GPU, by kernels that serve every shape.

In half precision torch prefers cuDNN's attention on a Hopper GPU. That is built anew for each shape of its inputs, for
5 to 7 ms a layer (torch 2.11, H200): chunks have hundreds of widths, and with each token that is written the next one
looks back on more. A product whose matrix has an odd number of rows, as RoBERTa's vocabulary of 50,265, goes to a
kernel for older GPUs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

OF_ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
ALIGNED = 64  # rows of a matrix; tensor cores want a multiple of 8 in half precision


@contextlib.contextmanager
def attention_of_any_shape(device: torch.device) -> Iterator[None]:
    """Inside, SDPA on a GPU takes no kernel of cuDNN; nothing happens on other devices."""
    with sdpa_kernel(OF_ANY_SHAPE) if device.type == "cuda" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def aligned_rows(linear: nn.Module) -> Iterator[None]:
    """Inside, a plain linear layer on a GPU computes with rows of zeros behind its own, up to a multiple of `ALIGNED`,
    whose products are left out again.
    """
    if type(linear) is not nn.Linear or not linear.weight.is_cuda or linear.out_features % ALIGNED == 0:
        yield
        return
    layer: Any = linear  # what an instance's own forward pass is to mypy
    layer.forward = lambda states: product_of_aligned_rows(states, layer.weight, layer.bias)
    try:
        yield
    finally:
        del layer.forward  # the method of the class is back


def product_of_aligned_rows(states: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """(..., D) -> (..., V)"""
    device, rows = weight_VD.device.type, len(weight_VD)
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
    weight = F.pad(weight_VD.to(dtype), (0, 0, 0, -rows % ALIGNED))
    bias = None if bias_V is None else F.pad(bias_V.to(dtype), (0, -rows % ALIGNED))
    return F.linear(states, weight, bias)[..., :rows]
