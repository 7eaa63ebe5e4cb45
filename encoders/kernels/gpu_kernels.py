"""Attention kernels for inputs of any shape on a GPU, and an aligned product with the vocabulary.

In half precision torch prefers cuDNN's attention on a Hopper GPU. That is built anew for each shape of its inputs, for
5 to 7 ms a layer (torch 2.11, H200): chunks have hundreds of widths, and with each token that is written the next one
looks back on more. A product whose matrix has an odd number of rows, as RoBERTa's vocabulary of 50,265, goes to a
kernel for older GPUs.
"""

import contextlib
from collections.abc import Iterator

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


def is_unaligned(layer: nn.Module) -> bool:
    """Whether this is a plain linear layer on a GPU whose number of rows is no multiple of `ALIGNED`."""
    return type(layer) is nn.Linear and layer.weight.is_cuda and layer.out_features % ALIGNED != 0


def product_of_aligned_rows(states: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """Compute a linear layer, (..., D) -> (..., V), with rows of zeros added to its matrix up to a multiple of
    `ALIGNED`. The products of those rows are dropped.
    """
    device, rows = weight_VD.device.type, len(weight_VD)
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
    weight = F.pad(weight_VD.to(dtype), (0, 0, 0, -rows % ALIGNED))
    bias = None if bias_V is None else F.pad(bias_V.to(dtype), (0, -rows % ALIGNED))
    return F.linear(states, weight, bias)[..., :rows]
