"""Weights sharded over processes, layer by layer (FSDP2, `torch.distributed.fsdp.fully_shard`).

A layer is gathered when it computes and forgotten afterwards, forward and backward, so every forward is a collective:
all ranks compute equally many chunks. Embeddings, which a language-model head shares, and all else that stands outside
of the layers are gathered for a whole step, or a whole scoring.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from contracts import InputError
from encoders.layers import layers_of


def shard(module: nn.Module, transformer: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Shard the weights of a module over a mesh of one dimension, in place.

    Raises:
        InputError: it has no layers with weights of their own.
    """
    layers = layers_of(cast(PreTrainedModel, transformer.base_model))
    of_layers = {weight for layer in layers for weight in layer.parameters()}
    places = Counter(weight for _, weight in module.named_parameters(remove_duplicate=False) if weight in of_layers)
    if not layers or max(places.values()) > 1:
        raise InputError(
            f"trainer=fsdp shards a model by its layers, and this {transformer.config.model_type} has none, or uses "
            "their weights at other places, too. Take trainer=ddp."
        )
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    register_fsdp_forward_method(module, "training_step")
    module._get_fsdp_state()._lazy_init()  # type: ignore[operator]  # or the first layer that computes would be the root


def is_sharded(transformer: nn.Module) -> bool:
    """Whether its layers are gathered when they compute."""
    return any(isinstance(module, FSDPModule) for module in transformer.modules())


@contextlib.contextmanager
def gathered(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, what these modules have outside of their layers is there on all ranks, for forwards outside of a step."""
    sharded = [module for module in modules if isinstance(module, FSDPModule)]
    for module in sharded:
        module.unshard()
    try:
        yield
    finally:
        for module in sharded:
            module.reshard()


def agreed(transformer: nn.Module, chunks: int, again: bool = False) -> tuple[int, bool]:
    """The most chunks of a rank, and whether a rank computes its chunks again in the backward pass. A collective where
    weights are sharded; elsewhere what was given.
    """
    if not is_sharded(transformer):
        return chunks, again
    most = torch.tensor([chunks, again], device=next(transformer.parameters()).device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return int(most[0]), bool(most[1])


def whole(tensor: Tensor) -> Tensor:
    """A tensor on every rank. A collective, where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def here(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def load_weights(module: pl.LightningModule, weights: Mapping[str, Tensor]) -> bool:
    """Load whole weights into a module, of which each rank keeps its part where they are sharded; return whether all
    were there before, which is not asked of sharded ones.
    """
    if isinstance(module, FSDPModule):
        options = StateDictOptions(full_state_dict=True, strict=module.strict_loading)
        set_model_state_dict(module, cast(Any, dict(weights)), options=options)
        return False
    own = module.state_dict()
    same = own.keys() == weights.keys() and all(torch.equal(own[name].cpu(), weights[name].cpu()) for name in own)
    module.load_state_dict(weights)
    return same
