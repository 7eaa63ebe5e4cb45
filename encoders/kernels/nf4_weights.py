"""Frozen 4-bit linear layers (QLoRA, Dettmers et al. 2023), which dequantize their weights for each matmul.

Weights are quantized by bitsandbytes: blocks of 64 weights with the 16 values of NF4 and 8-bit scales, 4.13 bits per
weight. The layers of bitsandbytes are not used: on some CPUs, they permanently round the scales in the first forward
pass without gradients.
"""

import copy
from collections.abc import Set
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from contrastive_encoders.compat import raw_parameters


class Nf4Linear(nn.Linear):
    """Linear layer with a 4-bit weight, created by `quantize`. Reading ``weight`` dequantizes it to float32."""

    state: Any  # bitsandbytes' QuantState: shape and scales

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return dequantize_weight(raw_parameters(self)["weight"], self.state, torch.float32)

    def forward(self, input: Tensor) -> Tensor:
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        return cast(Tensor, _Product.apply(input.to(dtype), raw_parameters(self)["weight"], self.state, bias))

    def _apply(self, fn: Any, recurse: bool = True) -> "Nf4Linear":
        super()._apply(fn, recurse)
        self.state.to(raw_parameters(self)["weight"].device)
        return self


class _Product(torch.autograd.Function):
    """Linear function x W^T + b with frozen W and b. It saves W in 4 bits for the backward pass, and not x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, state: Any, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(packed)
        ctx.state = state
        return F.linear(x, dequantize_weight(packed, state, x.dtype), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (packed,) = ctx.saved_tensors
        return grad @ dequantize_weight(packed, ctx.state, grad.dtype), None, None, None


def dequantize_weight(packed: Any, state: Any, dtype: torch.dtype) -> Tensor:
    """Dequantize a weight to a tensor (out, in) of ``dtype``, a 16-bit or 32-bit type."""
    state = copy.copy(state)
    state.dtype = dtype
    return cast(Tensor, _functional().dequantize_4bit(packed, state))


def quantize(module: nn.Module, weights: Set[nn.Parameter]) -> None:
    """Convert linear layers of a module to 4 bits, in place: those whose weights are in ``weights``.

    Tied weights remain tied.
    """
    states = dict[nn.Parameter, Any]()
    for layer in module.modules():
        weight = raw_parameters(layer).get("weight")
        if weight is not None and weight in weights:
            if weight not in states:
                plain = weight.data.float()
                weight.data, states[weight] = _functional().quantize_4bit(
                    plain, quant_type="nf4", compress_statistics=True
                )
            layer.__class__, layer.state = Nf4Linear, states[weight]


def dequantize(module: nn.Module, original: nn.Module) -> None:
    """Undo `quantize` in place: each 4-bit layer gets the weight of the layer with the same name in ``original``,
    without a copy.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, Nf4Linear):
            plain = cast(Any, original.get_submodule(name))
            del layer.state
            layer.__class__ = plain.__class__
            raw_parameters(layer)["weight"].data = raw_parameters(plain)["weight"].data


def is_quantized(module: nn.Module) -> bool:
    """Return whether any layer of a module is quantized to 4 bits."""
    return any(isinstance(layer, Nf4Linear) for layer in module.modules())


def _functional() -> Any:
    import bitsandbytes.functional

    return bitsandbytes.functional
