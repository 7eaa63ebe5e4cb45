"""Wrappers of private APIs of torch and transformers. No other module uses a private name.

The headings give the versions with which the functions were tested, and each function states why there is no public
API. ``tests/test_compat.py`` fails as soon as there is one. The libraries are imported when a function is called, so
that commands that only print their help are not slowed down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.distributed.fsdp import FSDPModule
    from transformers import PreTrainedModel

# ------------------------------------------------------------------------------------------ torch 2.11 to 2.13


def raw_parameters(module: Any) -> dict[str, Any]:
    """Return the dictionary in which a module stores its parameters, for changes in place.

    ``module.weight`` may be a property that converts the weight, and ``named_parameters`` is a copy.
    """
    return module._parameters


def version_of(tensor: Tensor) -> int:
    """Return the version counter of a tensor, which each in-place change increments. It is only meant for autograd."""
    return int(tensor._version)


def multiplies_bf16(device: str) -> bool:
    """Return whether a device type supports bfloat16 matmuls natively.

    The public function of torch only covers GPUs.
    """
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def clips_before_step(optimizer: torch.optim.Optimizer) -> None:
    """Make the fp16 gradient scaler unscale the gradients before the step of a fused optimizer.

    Otherwise, Lightning does not clip the gradients.
    """
    setattr(optimizer, "_step_supports_amp_scaling", False)  # noqa: B010  torch does not declare it


def flash_attention(query: Tensor, key: Tensor, value: Tensor, *shape: Any, **options: Any) -> Tensor:
    """Compute FlashAttention over packed sequences of any lengths.

    ``torch.nn.attention.varlen`` supports no dropout.
    """
    import torch

    return torch.ops.aten._flash_attention_forward(query, key, value, *shape, **options)[0]


def efficient_attention(query: Tensor, key: Tensor, value: Tensor, *shape: Any, **options: Any) -> Tensor:
    """Compute attention as `flash_attention` does, with torch's memory-efficient attention, which also supports
    float32.
    """
    import torch

    return torch.ops.aten._efficient_attention_forward(query, key, value, None, *shape, **options)[0]


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b, computed by oneDNN as in compiled code. Otherwise, torch calls MKL."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def onednn_weight(weight: Tensor) -> Tensor:
    """Return a weight in the layout that `onednn_product` reads fastest."""
    import torch

    return torch.ops.mkldnn._reorder_linear_weight(weight)


def local_slices(tensor: Any) -> tuple[slice, ...]:
    """Return the slices of the full tensor that a ``DTensor`` stores on this rank."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(first, first + size) for first, size in zip(offset, shape, strict=True))


def make_root(module: FSDPModule) -> None:
    """Make a sharded module the FSDP root of its layers.

    Otherwise, the first layer that computes would become a root.
    """
    module._get_fsdp_state()._lazy_init()


def materialize(module: nn.Module, device: torch.device) -> None:
    """Allocate memory for the meta tensors of a module on a device.

    ``to_empty`` would also discard the values of all other tensors.
    """
    import torch

    module._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)


def set_up_compiler(max_graphs: int) -> None:
    """Configure ``torch.compile`` for single layers: at most ``max_graphs`` graphs per function, without graph splits
    by DDP.
    """
    import torch
    from torch._inductor import config as inductor

    # it makes the backward pass of layer norms four times as slow on an H200
    if hasattr(inductor.triton, "mix_order_reduction"):
        inductor.triton.mix_order_reduction = False
    settings: Any = torch._dynamo.config
    settings.optimize_ddp = False  # it splits models into pieces of the size of a bucket
    settings.cache_size_limit = max_graphs


def call_around_compilations(start: Callable[..., None], end: Callable[..., None]) -> None:
    """Register a function to call before each compilation and one to call after it; ``torch.compiler.reset`` removes
    them.
    """
    from torch._dynamo.callback import callback_handler

    if start not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(start)
        callback_handler.register_end_callback(end)


def compiled_graphs() -> int:
    """Return the number of graphs that were compiled in this process."""
    import torch

    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


# ------------------------------------------------------------------------------------------ transformers 5.21 to 5.23


def find_file(name: str, path: str, *, if_reachable: bool = False, **options: Any) -> str | None:
    """Return the path of a file in a directory or Hub repository, or None if there is no such file.

    ``cached_file`` raises the same OSError for a missing file and for an unreachable Hub.

    Args:
        if_reachable: return None instead of raising an error if a repository cannot be read.
        **options: arguments of ``cached_file``, such as ``local_files_only``.

    Raises:
        OSError: the directory does not exist, or the Hub cannot be reached.
    """
    from transformers.utils.hub import cached_file

    ignored = ["missing_entries", *(["connection_errors", "gated_repo"] if if_reachable else [])]
    return cached_file(name, path, **options, **{f"_raise_exceptions_for_{error}": False for error in ignored})


def commit_of(config: Any) -> str | None:
    """Return the commit of the Hub repository from which a config was loaded; None for a local directory."""
    return getattr(config, "_commit_hash", None)


def attention_implementation(model: PreTrainedModel) -> str:
    """Return the name of a model's attention implementation, which the public API can set but not read."""
    return str(model.config._attn_implementation)


@contextlib.contextmanager
def attention_replaced(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Context manager in which a model uses the attention implementation ``name``. The public setter visits all modules
    each time.
    """
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


def takes_any_attention(model: PreTrainedModel) -> bool:
    """Return whether a model supports every attention implementation that is registered in transformers."""
    return bool(model._supports_flash_attn)


def is_stateful(model_class: Any) -> bool:
    """Return whether a model class keeps a state of past tokens other than a key-value cache."""
    return bool(model_class._is_stateful)


def scaled_adafactor() -> Any:
    """Return transformers' Adafactor, which scales learning rates by a weight's RMS, without device synchronization."""
    from transformers.optimization import Adafactor

    class ScaledAdafactor(Adafactor):
        @staticmethod
        def _get_lr(param_group: dict[str, Any], param_state: dict[str, Any]) -> Any:
            return param_group["lr"] * param_state["RMS"].clamp(min=param_group["eps"][1])

    return ScaledAdafactor
