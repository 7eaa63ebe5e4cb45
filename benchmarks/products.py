"""The matrix products of training steps, recorded and computed alone."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # sizes, strides, type


class RecordedProducts(TorchDispatchMode, pl.Callback):
    """A callback that counts the products of all steps after the first one, by the layouts of their operands.

    Products inside fused kernels (attention, oneDNN's layers) are not counted.

    Attributes:
        has_fused_layers: whether linear layers of oneDNN were computed, so that most products were not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[tuple[Callable[..., Tensor], tuple[Layout, ...]]]()
        self.has_fused_layers = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.has_fused_layers |= func.name().startswith("mkldnn::")
        if func.name().split(".")[0] in PRODUCTS:
            self.counts[
                func.overloadpacket.default, tuple((tuple(one.shape), one.stride(), one.dtype) for one in args)
            ] += 1
        return func(*args, **(kwargs or {}))

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 1:
            self.__enter__()

    def on_train_end(self, *_: Any) -> None:
        self.__exit__(None, None, None)

    def computation(self) -> Callable[[], None]:
        """Return a function that computes the recorded products, with operands of the same layouts."""
        calls = [
            (product, [torch.empty_strided(*layout[:2], dtype=layout[2]).fill_(0.5) for layout in layouts], count)
            for (product, layouts), count in self.counts.items()
        ]

        @torch.no_grad()
        def compute() -> None:
            for product, operands, count in calls:
                for _ in range(count):
                    product(*operands)

        return compute
