"""Frozen bfloat16 weights with float32 hidden states: each layer casts its weight for each matmul.

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
    """Mixin that makes a layer of torch read its weight in float32."""

    _parameters: dict[str, Any]

    @property
    def weight(self) -> Tensor:
        held = raw_parameters(self)["weight"]
        return held if isinstance(held, DTensor) else held.float()  # FSDP reads its shard, and must get the original


class HeldEmbedding(BF16WeightMixin, nn.Embedding):  # type: ignore[override]
    """Embedding that looks up rows before the cast, because the weight has the size of the vocabulary."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.embedding(input, raw_parameters(self)["weight"], self.padding_idx).float()


class _HeldProduct(BF16WeightMixin):
    @property
    def weight(self) -> Tensor:
        held = raw_parameters(self)["weight"]
        return held if torch.is_autocast_enabled(held.device.type) else super().weight


class HeldLinear(_HeldProduct, nn.Linear):  # type: ignore[override]
    pass


class HeldConv1D(_HeldProduct, Conv1D):  # type: ignore[misc]
    pass


HELD: dict[type, type] = {nn.Linear: HeldLinear, nn.Embedding: HeldEmbedding, Conv1D: HeldConv1D}


def cast_frozen_to_bf16(*modules: nn.Module, rounded: bool = True) -> None:
    """Cast the frozen weights of linear layers and embeddings to bfloat16. Norms and biases are not changed.

    With ``rounded=False``, only weights that bfloat16 represents exactly are cast, such as those of a model that was
    published in bfloat16.
    """
    layers = list(chain.from_iterable(module.modules() for module in modules))
    others = {weight for layer in layers if type(layer) not in HELD for weight in raw_parameters(layer).values()}
    for layer in layers:
        weight = raw_parameters(layer).get("weight")
        if type(layer) in HELD and weight is not None and not weight.requires_grad and weight not in others:
            if not rounded and not torch.equal(weight.data.bfloat16().to(weight.dtype), weight.data):
                continue
            weight.data = weight.data.bfloat16()
            layer.__class__ = HELD[type(layer)]
    # A memory-mapped file stays in memory completely while one of its tensors is in use
    for weight in {weight for layer in layers for weight in raw_parameters(layer).values() if weight is not None}:
        if weight.dtype != torch.bfloat16:
            weight.data = weight.data.clone()


def restore_float32(module: nn.Module) -> None:
    """Undo `cast_frozen_to_bf16`: restore plain layers with float32 weights, in place."""
    plain = {held: kind for kind, held in HELD.items()}
    for layer in module.modules():
        if type(layer) in plain:
            layer.__class__ = plain[type(layer)]
            weight = raw_parameters(layer)["weight"]
            weight.data = weight.data.float()
