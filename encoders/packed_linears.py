"""Linear layers of a CPU through oneDNN, with weights laid out beforehand, for as long as texts are encoded.

PyTorch sends float32 products to MKL, which knows AVX-512 only on its maker's processors: 102 GFLOP/s against 240 on
one core of a Zen 5. In bfloat16 both are oneDNN, and laying the weights out once saves a tenth.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

WORTH_IT_TOKENS = 2_048  # laying out the weights costs about as much as 50 tokens


@contextlib.contextmanager
def packed_linears(module: nn.Module, tokens: int) -> Iterator[None]:
    """Inside, every plain ``nn.Linear`` of ``module`` computes through oneDNN: for inference, without a gradient.

    The weights must not change inside. Nothing happens where it cannot help: on another device, under autocast, for few
    tokens, in a build without oneDNN.
    """
    linears = [layer for layer in module.modules() if type(layer) is nn.Linear] if _helps(module, tokens) else []
    for layer in linears:
        layer.forward = _packed(layer)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for layer in linears:
            del layer.forward  # the method of the class is back


def _helps(module: nn.Module, tokens: int) -> bool:
    weight = next(module.parameters())
    return (
        weight.is_cpu
        and weight.dtype in (torch.float32, torch.bfloat16)
        and tokens >= WORTH_IT_TOKENS
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and available(weight.dtype)
    )


@functools.cache
def available(dtype: torch.dtype) -> bool:
    """Whether this build has oneDNN's operators, which PyTorch's own compiler uses but does not promise."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        return False
    with torch.random.fork_rng(devices=[]):  # asked within a step: its dropout must not depend on who asked first
        layer = nn.Linear(16, 32, dtype=dtype)
    x = torch.linspace(-1, 1, 48).view(1, 3, 16).to(dtype)
    try:
        with torch.no_grad():
            return torch.allclose(_packed(layer)(x), layer(x), atol=1e-5 if dtype == torch.float32 else 3e-2)
    except (AttributeError, RuntimeError):
        return False


def _packed(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight, bias = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach()), layer.bias

    def forward(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    return forward
