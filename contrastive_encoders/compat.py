"""Private names of torch and transformers. No other module uses one.

The headings say with which versions the functions were tested, each function why there is no public way;
``tests/test_compat.py`` fails as soon as there is one. The libraries are imported when a function is called, so that a
command that only prints its help is not slowed down.
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

# ------------------------------------------------------------------------------------------ torch 2.6 to 2.13


def raw_parameters(module: Any) -> dict[str, Any]:
    """Return the module's dictionary of its own parameters, which is changed in place.

    ``module.weight`` may be a property that converts the weight, and ``named_parameters`` is a copy.
    """
    return module._parameters


def version_of(tensor: Tensor) -> int:
    """Return a number that each change of a tensor in place increases; only autograd reads it."""
    return int(tensor._version)


def multiplies_bf16(device: str) -> bool:
    """Return whether a kind of device multiplies in bfloat16 by itself. torch says so of GPUs only."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def clips_before_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell the gradient scaler of fp16 that gradients are unscaled before the step of a fused optimizer, where they are
    clipped. Lightning clips none otherwise.
    """
    setattr(optimizer, "_step_supports_amp_scaling", False)  # noqa: B010  torch does not declare it


def flash_attention(query: Tensor, key: Tensor, value: Tensor, *shape: Any, **options: Any) -> Tensor:
    """FlashAttention over sequences of any lengths, one behind the other: ``torch.nn.attention.varlen`` has no
    dropout.
    """
    import torch

    return torch.ops.aten._flash_attention_forward(query, key, value, *shape, **options)[0]


def efficient_attention(query: Tensor, key: Tensor, value: Tensor, *shape: Any, **options: Any) -> Tensor:
    """The same by torch's memory-efficient attention, which also takes float32."""
    import torch

    return torch.ops.aten._efficient_attention_forward(query, key, value, None, *shape, **options)[0]


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b by oneDNN, which torch's own compiler calls in this way; torch sends it to MKL."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def onednn_weight(weight: Tensor) -> Tensor:
    """Return a weight as `onednn_product` reads it fastest."""
    import torch

    return torch.ops.mkldnn._reorder_linear_weight(weight)


def local_slices(tensor: Any) -> tuple[slice, ...]:
    """Return which part of the whole tensor this rank has of a ``DTensor``."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(first, first + size) for first, size in zip(offset, shape, strict=True))


def make_root(module: FSDPModule) -> None:
    """Make a sharded module the root of its layers now; else the first layer that computes would be one."""
    module._get_fsdp_state()._lazy_init()


def materialize(module: nn.Module, device: torch.device) -> None:
    """Give the meta tensors of a module memory on a device; ``to_empty`` would forget the values of all others, too."""
    import torch

    module._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)


def set_up_compiler(max_graphs: int) -> None:
    """Set up ``torch.compile`` for single layers: so many graphs of one function, and none cut by DDP."""
    import torch
    from torch._inductor import config as inductor

    if hasattr(inductor.triton, "mix_order_reduction"):  # it makes layer norms four times as slow backward on a H200
        inductor.triton.mix_order_reduction = False
    settings: Any = torch._dynamo.config
    settings.optimize_ddp = False  # it cuts whole models into pieces of the size of a bucket
    settings.cache_size_limit = max_graphs


def call_around_compilations(start: Callable[..., None], end: Callable[..., None]) -> None:
    """Have functions called before and after each compilation; ``torch.compiler.reset`` forgets them."""
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
    """Return the path of a file of a directory or of the hub; None if there is no such file.

    ``cached_file`` raises the same OSError for a file that is not there and for a hub out of reach.

    Args:
        if_reachable: return None instead of an error for a repository that cannot be read.
        **options: those of ``cached_file``, such as ``local_files_only``.

    Raises:
        OSError: the directory does not exist, or the hub cannot be reached.
    """
    from transformers.utils.hub import cached_file

    ignored = ["missing_entries", *(["connection_errors", "gated_repo"] if if_reachable else [])]
    return cached_file(name, path, **options, **{f"_raise_exceptions_for_{error}": False for error in ignored})


def attention_implementation(model: PreTrainedModel) -> str:
    """Return the name of a model's attention, which has a public setter only."""
    return str(model.config._attn_implementation)


@contextlib.contextmanager
def attention_replaced(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Inside, a model has the attention of this name; the public setter goes over all modules each time."""
    before = model.config._attn_implementation
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


def takes_any_attention(model: PreTrainedModel) -> bool:
    """Return whether a family leaves its attention to transformers' table of attentions."""
    return bool(model._supports_flash_attn)


def is_stateful(model_class: Any) -> bool:
    """Return whether a class of models keeps more of its tokens than keys and values."""
    return bool(model_class._is_stateful)


def scaled_adafactor() -> Any:
    """Return transformers' Adafactor with rates by the size of a weight, which is not asked of the device."""
    from transformers.optimization import Adafactor

    class ScaledAdafactor(Adafactor):
        @staticmethod
        def _get_lr(param_group: dict[str, Any], param_state: dict[str, Any]) -> Any:
            return param_group["lr"] * param_state["RMS"].clamp(min=param_group["eps"][1])

    return ScaledAdafactor
