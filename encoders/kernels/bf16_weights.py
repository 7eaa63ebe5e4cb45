"""Frozen bfloat16 weights with float32 hidden states: each layer casts its weight to float32 for each matmul.

Under autocast, matmuls are in 16 bits, and no cast is needed.
"""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers.pytorch_utils import Conv1D

from contrastive_encoders.compat import raw_parameters


class BF16WeightMixin:
    """Mixin for a layer of torch whose parameter is in bfloat16; ``weight`` returns a float32 copy of the parameter."""

    _parameters: dict[str, Any]

    @property
    def weight(self) -> Tensor:
        weight = raw_parameters(self)["weight"]
        return weight if isinstance(weight, DTensor) else weight.float()  # FSDP needs the original shard


class BF16Embedding(BF16WeightMixin, nn.Embedding):  # type: ignore[override]
    """Embedding that casts to float32 only the rows that it looks up, not the weight of the entire vocabulary."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.embedding(input, raw_parameters(self)["weight"], self.padding_idx).float()


class _BF16Matmul(BF16WeightMixin):
    @property
    def weight(self) -> Tensor:
        weight = raw_parameters(self)["weight"]
        return weight if torch.is_autocast_enabled(weight.device.type) else super().weight


class BF16Linear(_BF16Matmul, nn.Linear):  # type: ignore[override]
    pass


class BF16Conv1D(_BF16Matmul, Conv1D):  # type: ignore[misc]
    pass


BF16_CLASSES: dict[type, type] = {nn.Linear: BF16Linear, nn.Embedding: BF16Embedding, Conv1D: BF16Conv1D}


def cast_frozen_to_bf16(*modules: nn.Module, rounded: bool = True) -> None:
    """Cast the frozen weights of linear layers and embeddings to bfloat16. Norms and biases are not changed.

    With ``rounded=False``, only weights that bfloat16 represents exactly are cast, such as those of a model that was
    published in bfloat16.
    """
    layers = list(chain.from_iterable(module.modules() for module in modules))
    others = {
        weight for layer in layers if type(layer) not in BF16_CLASSES for weight in raw_parameters(layer).values()
    }
    for layer in layers:
        weight = raw_parameters(layer).get("weight")
        if type(layer) in BF16_CLASSES and weight is not None and not weight.requires_grad and weight not in others:
            if not rounded and not torch.equal(weight.data.bfloat16().to(weight.dtype), weight.data):
                continue
            weight.data = weight.data.bfloat16()
            layer.__class__ = BF16_CLASSES[type(layer)]
    # A memory-mapped file stays in memory completely while one of its tensors is in use
    for weight in {weight for layer in layers for weight in raw_parameters(layer).values() if weight is not None}:
        if weight.dtype != torch.bfloat16:
            weight.data = weight.data.clone()


def restore_float32(module: nn.Module) -> None:
    """Undo `cast_frozen_to_bf16` in place: convert the layers to their original torch classes, with float32 weights."""
    plain = {bf16: kind for kind, bf16 in BF16_CLASSES.items()}
    for layer in module.modules():
        if type(layer) in plain:
            layer.__class__ = plain[type(layer)]
            weight = raw_parameters(layer)["weight"]
            weight.data = weight.data.float()
