"""GPU kernels: attention for inputs of any shape and for packed sequences, and a matmul with an aligned vocabulary
dimension.

In half precision, torch prefers cuDNN's attention on a Hopper GPU. It is rebuilt for each input shape, which takes 5 to
7 ms per layer (torch 2.11, H200): chunks have hundreds of widths, and each generated token has a different context
length. Nested tensors also use the variable-length kernels, but take a millisecond of host time per layer. A
matmul with a number of rows that is not a multiple of 64, such as RoBERTa's vocabulary of 50,265, uses a kernel for
older GPUs.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from contrastive_encoders.compat import efficient_attention, flash_attention

SDPA_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
MAX_FLASH_WIDTH = 192  # width of a head; some GPUs have no backward pass for larger ones
ROW_ALIGNMENT = 64  # rows of a matrix; tensor cores require a multiple of 8 in half precision


@contextlib.contextmanager
def exclude_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Context manager that excludes cuDNN kernels from SDPA on a GPU. It has no effect on other devices."""
    with sdpa_kernel(SDPA_BACKENDS) if device.type == "cuda" else contextlib.nullcontext():
        yield


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    longest: int,
    *,
    causal: bool,
    window: int | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> Tensor | None:
    """Compute attention within each of B packed sequences with N tokens in total; queries, keys,
    values, and the output have the shape (N, heads, D).

    FlashAttention is used in half precision, and otherwise memory-efficient attention, which has no sliding window.
    ``torch.nn.attention.varlen`` is not used because it has no dropout.

    Args:
        bounds: (B + 1,) int32, the start of each sequence, and the end of the last one.
        longest: Number of tokens of the longest sequence.

    Returns:
        The attention output, or None if neither kernel supports these inputs on their device.
    """
    widths = query.shape[-1], value.shape[-1]
    if not query.is_cuda or any(width % 8 != 0 or width > 256 for width in widths):
        return None
    dtype, recent = _product_dtype(query), torch.cuda.get_device_capability(query.device) >= (8, 0)
    flash = recent and torch.backends.cuda.is_flash_attention_available() and max(widths) <= MAX_FLASH_WIDTH
    flash = flash and dtype in (torch.float16, torch.bfloat16) and widths[0] == widths[1]
    if not flash and (window is not None or dtype not in (torch.float32, torch.float16, *([torch.bfloat16] * recent))):
        return None
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    shape = (bounds, bounds, longest, longest)
    if flash:
        before = -1 if window is None else window - 1
        sides = {"window_size_left": before, "window_size_right": 0 if causal else before}
        return flash_attention(query, key, value, *shape, dropout, causal, False, scale=scaling, **sides)
    if (groups := query.shape[1] // key.shape[1]) > 1:  # heads that share keys and values
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    q, k, v = (one.unsqueeze(0) for one in (query, key, value))
    found = efficient_attention(q, k, v, *shape, dropout, int(causal), torch.is_grad_enabled(), scale=scaling)
    return found.squeeze(0)


def _product_dtype(states: Tensor) -> torch.dtype:
    """Return the dtype of a matmul with these hidden states: the autocast dtype, or the dtype of the states if autocast
    is disabled.

    Autocast handles SDPA, but not its underlying operators, which require all inputs to have the same type.
    """
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


def is_unaligned(layer: nn.Module) -> bool:
    """Return whether this is a linear layer on a GPU whose output dimension is not a multiple of `ROW_ALIGNMENT`."""
    return type(layer) is nn.Linear and layer.weight.is_cuda and layer.out_features % ROW_ALIGNMENT != 0


def aligned_linear(states: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """Compute a linear layer, (..., D) -> (..., V), after padding its weight to a multiple of `ROW_ALIGNMENT` rows.

    The rows of the padding are zero, and their outputs are dropped.
    """
    dtype, rows = _product_dtype(weight_VD), len(weight_VD)
    weight = F.pad(weight_VD.to(dtype), (0, 0, 0, -rows % ROW_ALIGNMENT))
    bias = None if bias_V is None else F.pad(bias_V.to(dtype), (0, -rows % ROW_ALIGNMENT))
    return F.linear(states, weight, bias)[..., :rows]
