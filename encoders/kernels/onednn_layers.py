"""Context managers that replace linear and embedding layers on a CPU by faster ones with the same results.

PyTorch sends float32 products to MKL, which knows AVX-512 only on its maker's processors: 102 GFLOP/s against 240 on
one core of a Zen 5. Here linear layers go through oneDNN: in training with their backward pass, while texts are encoded
with weights laid out beforehand (in bfloat16, where both are oneDNN, that saves a tenth). An embedding's gradient has
the size of the vocabulary, once for every chunk that looks something up; here the rows of a batch are looked up once.
Under autocast every chunk casts all weights; here, and on other devices too, those that are trained are cast once a
step, and frozen ones once. A layer with an adapter goes over its states five times besides its products, and under
autocast casts what its neighbours have cast; here it does not.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakIdKeyDictionary

from contrastive_encoders.compat import onednn_product, onednn_weight, raw_parameters, version_of
from contrastive_encoders.encoders.kernels.bf16_weights import HeldLinear
from contrastive_encoders.encoders.kernels.gpu_kernels import attention_of_any_shape
from contrastive_encoders.encoders.kernels.host_layout import skip_mask_inspection


class _Linear(torch.autograd.Function):
    """x W^T + b of (rows, in) and (out, in), all three products by oneDNN. Transposed views are read as they lie.

    A matrix held in 16 bits is widened for each product, and not kept in 32 until the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight.to(x.dtype), bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.t().to(grad.dtype)) if for_x else None,
            _product(grad.t(), x.t()) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return onednn_product(x, weight, bias)


@contextlib.contextmanager
def fast_linears(module: nn.Module) -> Iterator[None]:
    """Inside, plain float32 ``nn.Linear`` of ``module`` compute through oneDNN where a gradient is wanted on a CPU,
    and those with an adapter in one go, under autocast, too.

    Other devices and inference keep what they have. The backward pass may run outside.
    """
    dtype = _product_type(torch.float32)
    helps = torch.is_grad_enabled() and available(dtype)
    layers = list(module.modules()) if helps else []
    plain = [layer for layer in layers if dtype == torch.float32 and _is_plain(layer)]
    adapted, narrow = [layer for layer in layers if _is_adapted(layer)], _Narrowed()
    with replaced(plain, _linear_of), replaced(adapted, lambda layer: _adapted_of(layer, narrow)):
        yield


def _is_plain(layer: nn.Module) -> bool:
    weight = raw_parameters(layer).get("weight")
    if weight is None or not weight.is_cpu:
        return False
    return type(layer) is HeldLinear or (type(layer) is nn.Linear and weight.dtype == torch.float32)


def _is_adapted(layer: Any) -> bool:
    """Whether it is peft's, around a plain layer, and one dropout serves all of its adapters."""
    if not hasattr(layer, "lora_A") or not _is_plain(layer.get_base_layer()):
        return False
    return len(layer.lora_A) == 1 or not any(isinstance(drop, nn.Dropout) for drop in layer.lora_dropout.values())


class _Narrowed:
    """States in the type of their products, cast once for layers that read the same ones, which follow each other."""

    def __init__(self) -> None:
        self.read, self.version, self.cast = cast(Any, None), 0, cast(Any, None)

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if x is not self.read or version_of(x) != self.version or self.cast.dtype != dtype:
            self.read, self.version, self.cast = x, version_of(x), x.detach().to(dtype)
        return cast(Tensor, self.cast)


class _Adapted(torch.autograd.Function):
    """x W^T + b + (z A^T) B^T of a frozen W; z is x, or where it is given what dropout has left of x. ``narrow`` is x
    in the type of the products.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        narrow: Tensor,
        dropped: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        a: Tensor,
        b: Tensor,
    ) -> Tensor:
        ctx.dtype = x.dtype
        low = _product(narrow if dropped is None else dropped, a)
        ctx.save_for_backward(narrow, dropped, weight, a, b, low)
        return _product(narrow, weight.to(narrow.dtype), bias).addmm_(low, b.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        narrow, dropped, weight, a, b, low = ctx.saved_tensors
        for_low = grad @ b
        for_x = _product(grad, weight.t().to(grad.dtype)) if ctx.needs_input_grad[0] else None
        for_dropped = None if dropped is None else for_low @ a
        if for_x is not None and dropped is None:
            for_x.addmm_(for_low, a)
        for_x = None if for_x is None else for_x.to(ctx.dtype)
        for_a = _product(for_low.t(), (narrow if dropped is None else dropped).t())
        # The first factor is copied where it is a view, so it is the small one
        return for_x, None, for_dropped, None, None, for_a, _product(low.t(), grad.t()).t()


def _adapted_of(layer: Any, narrow: _Narrowed) -> Callable[..., Tensor]:
    base, names = layer.get_base_layer(), layer.active_adapters

    def forward(x: Tensor) -> Tensor:
        dtype = _product_type(x.dtype)
        rows = x.reshape(-1, x.shape[-1])
        a = torch.cat([layer.lora_A[name].weight for name in names])
        b = torch.cat([layer.lora_B[name].weight * layer.scaling[name] for name in names], dim=1)
        drop = layer.lora_dropout[names[0]]
        dropped = drop(rows.to(dtype)) if layer.training and isinstance(drop, nn.Dropout) else None
        bias = None if base.bias is None else base.bias.to(dtype)
        weight = _once_in(dtype, raw_parameters(base)["weight"])
        found = _Adapted.apply(
            rows, narrow(x, dtype).reshape(rows.shape), dropped, weight, bias, a.to(dtype), b.to(dtype)
        )
        return found.view(*x.shape[:-1], -1)

    return forward


_CAST = WeakIdKeyDictionary()  # frozen weight -> its version, and the same in the type of autocast


def _once_in(dtype: torch.dtype, weight: Tensor) -> Tensor:
    """A frozen matrix in the type that its products are made in; one that is held in 16 bits is widened each time."""
    if dtype == torch.float32 or weight.dtype == dtype:
        return weight
    version, found = _CAST.get(weight, (None, None))
    if version != version_of(weight):
        found = weight.to(dtype)
        _CAST[weight] = (version_of(weight), found)
    return cast(Tensor, found)


def _linear_of(layer: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or not x.numel():
            return F.linear(x, layer.weight.to(x.dtype), layer.bias)
        rows = x.reshape(-1, x.shape[-1])
        return _Linear.apply(rows, raw_parameters(layer)["weight"], layer.bias).view(*x.shape[:-1], -1)

    return forward


@contextlib.contextmanager
def shared_between_chunks(
    embedding: nn.Module, ids: Tensor, pad: int, within: nn.Module | None = None
) -> Iterator[None]:
    """Inside, autocast casts a trained weight once, and on a CPU ``embedding`` serves ids among ``ids`` and ``pad``
    from rows looked up once. For the chunks of one step: the forward pass must not be repeated outside. What has the
    same weight ``within`` a model is served alike: both halves of an encoder-decoder.
    """
    plain = type(embedding) is nn.Embedding and embedding.max_norm is None and not embedding.scale_grad_by_freq
    plain = plain and ids.is_cpu  # a GPU would have to be asked which ids there are
    if not torch.is_grad_enabled():
        yield
        return
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    try:
        lookup = _lookup_of(embedding, ids, pad) if plain else None
        everywhere = [] if lookup is None else [embedding] if within is None else within.modules()
        tied = [one for one in everywhere if type(one) is nn.Embedding and one.weight is embedding.weight]
        with replaced(tied, lambda _: cast(Callable[[Tensor], Tensor], lookup)):
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
def replaced(layers: Sequence[Any], forward_of: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """Inside, each layer computes by the function that ``forward_of`` makes of it."""
    try:
        for layer in layers:
            layer.forward = forward_of(layer)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)  # the method of the class is back


PLAIN_ATTENTION_TOKENS = 128


@contextlib.contextmanager
def attention_for(ids_BT: Tensor) -> Iterator[None]:
    """On a CPU plain attention where torch's fast one is the slower: short sequences in half precision. Elsewhere the
    mask that transformers is given, unread, and a kernel that serves every shape.

    Its backward pass works on whole blocks: 85 ms against 17 ms at 24 tokens in bfloat16; at 512 the order turns.
    """
    if not ids_BT.is_cpu:
        with skip_mask_inspection(), attention_of_any_shape(ids_BT.device):
            yield
    elif torch.is_autocast_enabled("cpu") and ids_BT.shape[1] <= PLAIN_ATTENTION_TOKENS:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    else:
        yield


WORTH_IT_TOKENS = 2_048  # laying out the weights costs about as much as 50 tokens


@contextlib.contextmanager
def packed_linears(module: nn.Module, tokens: int) -> Iterator[None]:
    """Inside, every plain ``nn.Linear`` of ``module`` computes through oneDNN, under autocast in the type of that: for
    inference, without a gradient.

    Neither the weights nor autocast must change inside. Nothing happens where it cannot help: on another device, for
    few tokens, in a build without oneDNN.
    """
    weight = next(module.parameters())
    helps = weight.is_cpu and tokens >= WORTH_IT_TOKENS and not torch.is_grad_enabled()
    with replaced([layer for layer in module.modules() if helps and _is_packable(layer)], _packed):
        yield


def _is_packable(layer: nn.Module) -> bool:
    """Whether it is plain, and its weights are here: those of a sharded layer come when it computes."""
    if type(layer) is not nn.Linear or isinstance(layer.weight, DTensor):
        return False
    return available(_product_type(layer.weight.dtype))


def _product_type(alone: torch.dtype) -> torch.dtype:
    """In which a CPU multiplies: that of autocast, or without it ``alone``."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else alone


@functools.cache
def available(dtype: torch.dtype) -> bool:
    """Whether this build has oneDNN's operators, which PyTorch's own compiler uses but does not promise."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    with torch.random.fork_rng(devices=[]):  # asked within a step: its dropout must not depend on who asked first
        layer = nn.Linear(16, 32, dtype=dtype)
    x = torch.linspace(-1, 1, 48).view(1, 3, 16).to(dtype)
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return torch.allclose(_packed(layer)(x), layer(x), atol=1e-5 if dtype == torch.float32 else 3e-2)
    except (AttributeError, RuntimeError):
        return False


def _packed(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    dtype = _product_type(layer.weight.dtype)
    weight = onednn_weight(layer.weight.detach().to(dtype))
    bias = None if layer.bias is None else layer.bias.to(dtype)

    def forward(x: Tensor) -> Tensor:
        return onednn_product(x.to(dtype), weight, bias)

    return forward
