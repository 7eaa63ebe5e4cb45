"""What a training step on a CPU need not do: three savings that leave the arithmetic as it is.

PyTorch multiplies float32 matrices through MKL, which is slow on other makers' processors (`packed_linears` has the
figures); here linear layers go through oneDNN, backward pass included. An embedding's gradient has the size of the
vocabulary, once for every chunk that looks something up; here the rows of a batch are looked up once. Under autocast
every chunk casts all weights; here they are cast once a step.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from encoders.packed_linears import available


class _Linear(torch.autograd.Function):
    """x W^T + b of (rows, in) and (out, in), all three products by oneDNN. Transposed views are read as they lie."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.t()) if for_x else None,
            _product(grad.t(), x.t()) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@contextlib.contextmanager
def fast_linears(module: nn.Module) -> Iterator[None]:
    """Inside, plain float32 ``nn.Linear`` of ``module`` compute through oneDNN where a gradient is wanted on a CPU.

    Other devices, autocast and inference keep what they have. The backward pass may run outside.
    """
    helps = torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and available(torch.float32)
    linears = [layer for layer in module.modules() if type(layer) is nn.Linear and _is_plain(layer)] if helps else []
    with _patched(linears, _linear_of):
        yield


def _is_plain(layer: nn.Linear) -> bool:
    return layer.weight.is_cpu and layer.weight.dtype == torch.float32


def _linear_of(layer: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or not x.numel():
            return F.linear(x, layer.weight, layer.bias)
        rows = x.reshape(-1, x.shape[-1])
        return _Linear.apply(rows, layer.weight, layer.bias).view(*x.shape[:-1], -1)

    return forward


@contextlib.contextmanager
def shared_between_chunks(
    embedding: nn.Module, ids: Tensor, pad: int, within: nn.Module | None = None
) -> Iterator[None]:
    """Inside, ``embedding`` serves ids among ``ids`` and ``pad`` from rows looked up once, and autocast casts a weight
    once. For the chunks of one step on a CPU: the forward pass must not be repeated outside. What has the same weight
    ``within`` a model is served alike: both halves of an encoder-decoder.
    """
    plain = type(embedding) is nn.Embedding and embedding.max_norm is None and not embedding.scale_grad_by_freq
    if not (ids.is_cpu and torch.is_grad_enabled()):
        yield
        return
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    try:
        lookup = _lookup_of(embedding, ids, pad) if plain else None
        everywhere = [embedding] if within is None else within.modules()
        tied = [one for one in everywhere if plain and type(one) is nn.Embedding and one.weight is embedding.weight]
        with _patched(tied, lambda _: cast(Callable[[Tensor], Tensor], lookup)):
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _lookup_of(embedding: Any, ids: Tensor, pad: int) -> Callable[[Tensor], Tensor]:
    known = torch.cat([ids, ids.new_tensor([pad])]).unique()
    place = ids.new_full((embedding.num_embeddings,), len(known))  # an id that is not known fails in the lookup
    place[known] = torch.arange(len(known))
    rows = F.embedding(known, embedding.weight, embedding.padding_idx)
    return lambda wanted: F.embedding(place[wanted], rows)


@contextlib.contextmanager
def _patched(layers: list[Any], forward_of: Callable[[Any], Callable[[Tensor], Tensor]]) -> Iterator[None]:
    for layer in layers:
        layer.forward = forward_of(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the method of the class is back
