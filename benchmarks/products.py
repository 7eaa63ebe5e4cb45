"""Record the matrix multiplications of training steps, to time them without the rest of the steps."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmm_", "mkldnn::_linear_pointwise")


class Layout(NamedTuple):
    """Sizes, strides, and type of an operand."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def operand(self) -> Tensor:
        """Allocate a tensor with these sizes, strides, and type."""
        return torch.empty_strided(self.sizes, self.strides, dtype=self.dtype).fill_(0.5)


class RecordedProducts(TorchDispatchMode, pl.Callback):
    """A callback that counts the products of all steps after the first one, by the layouts of their operands.

    Products inside fused attention kernels are not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[tuple[Callable[..., Tensor], tuple[Any, ...]]]()  # operator, arguments

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().split(".")[0] in PRODUCTS:
            self.counts[func.overloadpacket, tuple(map(_layout, args))] += 1
        return func(*args, **(kwargs or {}))

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 1:
            self.__enter__()

    def on_train_end(self, *_: Any) -> None:
        self.__exit__(None, None, None)

    def computation(self) -> Callable[[], None]:
        """Return a function that computes the recorded products, with operands of the same layouts."""
        calls = [
            (product, [one.operand() if isinstance(one, Layout) else one for one in args], count)
            for (product, args), count in self.counts.items()
        ]

        @torch.no_grad()
        def compute() -> None:
            for product, operands, count in calls:
                for _ in range(count):
                    product(*operands)

        return compute


def _layout(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return Layout(tuple(argument.shape), argument.stride(), argument.dtype)
    return tuple(argument) if isinstance(argument, list) else argument
