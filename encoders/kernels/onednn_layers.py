"""Context managers that replace linear and embedding layers on a CPU by faster ones with the same results.

- Float32 matmuls: PyTorch uses MKL, which uses AVX-512 only on Intel processors (102 GFLOP/s instead of 240 on one
  core of a Zen 5). Linear layers are computed by oneDNN instead: at inference with prepacked weights, and on other
  processors also in training, including the backward pass. In training on Intel processors, oneDNN is slower, because
  it copies the transposed factor of the weight gradient. In bfloat16, for which PyTorch uses oneDNN as well,
  prepacking saves a tenth of the time.
- Embeddings: the gradient of an embedding has the size of the vocabulary, once per chunk. Here, the rows of a batch are
  looked up once.
- Autocast: every chunk casts all weights. Here (on other devices, too), trained weights are cast once per step, and
  frozen weights once.
- Adapters: a layer with an adapter reads its input five times in addition to its matmuls, and repeats the casts of its
  neighbors under autocast. Here, it does neither.
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
from contrastive_encoders.core.processor import cpu_field
from contrastive_encoders.encoders.kernels.bf16_weights import BF16Linear
from contrastive_encoders.encoders.kernels.gpu_kernels import exclude_cudnn_attention
from contrastive_encoders.encoders.kernels.host_layout import skip_mask_inspection


class _Linear(torch.autograd.Function):
    """Linear function x W^T + b of x (rows, in) and W (out, in), whose forward and backward matmuls use oneDNN.

    Transposed views are not copied. A 16-bit weight is cast for each matmul. The float32 copy is not kept
    for the backward pass.
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
    """Context manager in which the linear layers of ``module`` are computed by faster code on a CPU, if gradients are
    enabled.

    Plain float32 layers use oneDNN: those with frozen bfloat16 weights on all processors, and ``nn.Linear`` if MKL is
    slower. Layers with an adapter use one fused function, also under autocast. Other devices and inference are not
    changed. The backward pass may run outside the context.
    """
    dtype = _product_type(torch.float32)
    helps = torch.is_grad_enabled() and available(dtype)
    layers = list(module.modules()) if helps else []
    classes = (BF16Linear,) if is_mkl_fast() else (BF16Linear, nn.Linear)
    plain = [layer for layer in layers if dtype == torch.float32 and type(layer) in classes and _is_plain(layer)]
    adapted, narrow = [layer for layer in layers if _is_adapted(layer)], _CachedCast()
    with replaced(plain, _linear_of), replaced(adapted, lambda layer: _adapted_of(layer, narrow)):
        yield


def is_mkl_fast() -> bool:
    """Return whether MKL uses AVX-512 on this processor, which MKL does on Intel processors only."""
    return torch.backends.mkl.is_available() and cpu_field("vendor_id") == "GenuineIntel"


def _is_plain(layer: nn.Module) -> bool:
    weight = raw_parameters(layer).get("weight")
    if weight is None or not weight.is_cpu:
        return False
    return type(layer) is BF16Linear or (type(layer) is nn.Linear and weight.dtype == torch.float32)


def _is_adapted(layer: Any) -> bool:
    """Return whether the layer is a peft layer around a plain linear layer, with the same dropout for all of its
    adapters.
    """
    if not hasattr(layer, "lora_A") or not _is_plain(layer.get_base_layer()):
        return False
    return len(layer.lora_A) == 1 or not any(isinstance(drop, nn.Dropout) for drop in layer.lora_dropout.values())


class _CachedCast:
    """Callable that casts hidden states to the dtype of matmuls, and caches the result for other layers with the same
    input.
    """

    def __init__(self) -> None:
        self.read, self.version, self.cast = cast(Any, None), 0, cast(Any, None)

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if x is not self.read or version_of(x) != self.version or self.cast.dtype != dtype:
            self.read, self.version, self.cast = x, version_of(x), x.detach().to(dtype)
        return cast(Tensor, self.cast)


class _Adapted(torch.autograd.Function):
    """Linear function with a LoRA adapter and frozen W: x W^T + b + (dropout(x) A^T) B^T.

    dropout(x) is ``dropped``, or x if ``dropped`` is None. ``narrow`` is x in the matmul type.
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
        # The first factor is copied if it is a view, so the small one comes first
        return for_x, None, for_dropped, None, None, for_a, _product(low.t(), grad.t()).t()


def _adapted_of(layer: Any, narrow: _CachedCast) -> Callable[..., Tensor]:
    base, names = layer.get_base_layer(), layer.active_adapters

    def forward(x: Tensor) -> Tensor:
        dtype = _product_type(x.dtype)
        rows = x.reshape(-1, x.shape[-1])
        a = torch.cat([layer.lora_A[name].weight for name in names])
        b = torch.cat([layer.lora_B[name].weight * layer.scaling[name] for name in names], dim=1)
        drop = layer.lora_dropout[names[0]]
        dropped = drop(rows.to(dtype)) if layer.training and isinstance(drop, nn.Dropout) else None
        bias = None if base.bias is None else base.bias.to(dtype)
        weight = _cast_once(dtype, raw_parameters(base)["weight"])
        found = _Adapted.apply(
            rows, narrow(x, dtype).reshape(rows.shape), dropped, weight, bias, a.to(dtype), b.to(dtype)
        )
        return found.view(*x.shape[:-1], -1)

    return forward


_CAST = WeakIdKeyDictionary()  # frozen weight -> its version, and its copy in the autocast type


def _cast_once(dtype: torch.dtype, weight: Tensor) -> Tensor:
    """Cast a frozen weight to the dtype of matmuls, and cache the result.

    For float32 matmuls, the weight is returned unchanged, and a 16-bit weight is cast for each matmul.
    """
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
    """Context manager that reuses weight casts and embedding lookups across the chunks of a training step.

    Autocast casts each trained weight once. On a CPU, ``embedding`` looks up the rows of ``ids`` and ``pad`` once, and
    only these ids are valid. The forward pass must not be recomputed outside the context.

    Args:
        embedding: Input embeddings.
        ids: All token ids of the step.
        pad: Id of the pad token.
        within: Model whose other embeddings with the same weight are replaced as well, such as an encoder-decoder.
    """
    plain = type(embedding) is nn.Embedding and embedding.max_norm is None and not embedding.scale_grad_by_freq
    plain = plain and ids.is_cpu  # on a GPU, finding the distinct ids requires a synchronization
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
    place = ids.new_full((embedding.num_embeddings,), len(known))  # an unknown id raises an error in the lookup
    place[known] = torch.arange(len(known))
    rows = F.embedding(known, embedding.weight, embedding.padding_idx)
    return lambda wanted: F.embedding(place[wanted], rows)


@contextlib.contextmanager
def replaced(layers: Sequence[Any], forward_of: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """Context manager that replaces the ``forward`` of each layer with ``forward_of(layer)``."""
    outer = [vars(layer).get("forward") for layer in layers]  # from an outer context, or None
    try:
        for layer in layers:
            layer.forward = forward_of(layer)
        yield
    finally:
        for layer, forward in zip(layers, outer, strict=True):
            vars(layer).pop("forward", None)  # restores the method of the class
            if forward is not None:
                layer.forward = forward


PLAIN_ATTENTION_TOKENS = 128


@contextlib.contextmanager
def attention_for(ids_BT: Tensor) -> Iterator[None]:
    """Context manager that selects the kernel of scaled dot-product attention (SDPA) for a chunk.

    On a CPU, short sequences in half precision use the math kernel instead of the fused one: the backward pass of the
    fused kernel works on full blocks, and takes 85 ms instead of 17 ms at 24 tokens in bfloat16. At 512 tokens it is
    faster. On other devices, transformers does not inspect the attention mask, and a kernel that supports every shape
    is used.
    """
    if not ids_BT.is_cpu:
        with skip_mask_inspection(), exclude_cudnn_attention(ids_BT.device):
            yield
    elif torch.is_autocast_enabled("cpu") and ids_BT.shape[1] <= PLAIN_ATTENTION_TOKENS:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    else:
        yield


WORTH_IT_TOKENS = 2_048  # packing the weights costs about as much as 50 tokens


@contextlib.contextmanager
def packed_linears(module: nn.Module, tokens: int) -> Iterator[None]:
    """Context manager in which oneDNN computes every plain ``nn.Linear`` of ``module``, with weights in oneDNN's packed
    layout.

    It is for inference without gradients, and uses the autocast type if autocast is enabled. Neither the weights nor
    autocast may change inside the context. It has no effect on other devices, for few tokens, or in a build without
    oneDNN.
    """
    weight = next(module.parameters())
    helps = weight.is_cpu and tokens >= WORTH_IT_TOKENS and not torch.is_grad_enabled()
    with replaced([layer for layer in module.modules() if helps and _is_packable(layer)], _packed):
        yield


def _is_packable(layer: nn.Module) -> bool:
    if type(layer) is not nn.Linear or isinstance(layer.weight, DTensor):
        return False
    return available(_product_type(layer.weight.dtype))


def _product_type(alone: torch.dtype) -> torch.dtype:
    """Return the dtype of matmuls on a CPU: the autocast dtype, or ``alone`` if autocast is disabled."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else alone


@functools.cache
def available(dtype: torch.dtype) -> bool:
    """Return whether this build of PyTorch has the internal oneDNN operators, and whether these operators are fast and
    correct on this CPU.
    """
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    with torch.random.fork_rng(devices=[]):  # the first call may be within a step, whose dropout must not change
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
