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
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from contrastive_encoders.compat import local_slices, make_root, materialize
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.layers import layers_of
from contrastive_encoders.io.sharded_tensors import Shards, read_shards


def shard(module: nn.Module, transformer: PreTrainedModel, mesh: DeviceMesh) -> FSDPModule:
    """Shard the weights of a module over a mesh of one dimension, in place, and return it. Ranks without weights get
    their part of rank 0's. A collective.

    Raises:
        InputError: it has no layers with weights of their own.
    """
    layers = layers_of(cast(PreTrainedModel, transformer.base_model))
    of_layers = {weight for layer in layers for weight in layer.parameters()}
    places = Counter(weight for _, weight in module.named_parameters(remove_duplicate=False) if weight in of_layers)
    if not layers or max(places.values()) > 1:
        raise InputError(
            key="trainer",
            value="fsdp",
            expected=f"ddp for a {transformer.config.model_type}, which has no layers with weights of their own",
        )
    whole = module.state_dict() if dist.get_rank() == 0 else {}
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    sharded = fully_shard(module, mesh=mesh)
    _send_to_absent(module, whole, mesh)
    register_fsdp_forward_method(module, "training_step")
    make_root(sharded)
    return sharded


def _send_to_absent(module: nn.Module, whole: dict[str, Any], mesh: DeviceMesh) -> None:
    """Send each rank its part of the weights that rank 0 has, if any rank has none."""
    device = torch.device(mesh.device_type)
    absent = torch.tensor([any(weight.is_meta for weight in module.parameters())], dtype=torch.int32, device=device)
    dist.all_reduce(absent, op=dist.ReduceOp.MAX)
    if absent:
        materialize(module, device)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(module, whole, options=options)


def is_sharded(module: nn.Module) -> bool:
    """Return whether `shard` was called with this module."""
    return isinstance(module, FSDPModule)


@contextlib.contextmanager
def gathered(modules: Iterable[FSDPModule]) -> Iterator[None]:
    """Inside, every rank has the weights of sharded modules that stand outside of their layers: for a forward pass
    outside of a training step.
    """
    for module in modules:
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.reshard()


def agree_on_chunks(number: int, recomputed: bool, device: torch.device) -> tuple[int, bool]:
    """Return the largest number of chunks over the ranks, and whether any rank recomputes its chunks in the backward
    pass. A collective.
    """
    largest = torch.tensor([number, recomputed], device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest[0]), bool(largest[1])


def is_first_rank() -> bool:
    """Return whether this process is rank 0, or the only one."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def from_first_rank(value: Any) -> Any:
    """Return rank 0's value on all ranks. A collective."""
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor, a collective; return any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor; return any other as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_part_of(whole: Tensor, tensor: Tensor) -> bool:
    """Whether a tensor, or of a sharded one this rank's part, has the values of the ``whole`` one on the CPU."""
    if isinstance(tensor, DTensor):
        whole = whole[local_slices(tensor)]
    return torch.equal(local_tensor(tensor).cpu(), whole.cpu())


def load_weights(module: pl.LightningModule, weights: Mapping[str, Tensor]) -> bool:
    """Load full weights, or those of a checkpoint in shards, into a module; each rank of a sharded one keeps its part.

    Returns:
        Whether the module had these weights before; False of a sharded one, which is not compared.
    """
    if is_sharded(module) and isinstance(weights, Shards):
        own: dict[str, Any] = get_model_state_dict(module)
        read_shards(weights.folder, {weights.full(name): own[name] for name in weights})
        return False
    if is_sharded(module):
        options = StateDictOptions(full_state_dict=True, strict=module.strict_loading)
        set_model_state_dict(module, cast(Any, dict(weights)), options=options)
        return False
    now = module.state_dict()
    same = now.keys() == weights.keys() and all(torch.equal(now[name].cpu(), weights[name].cpu()) for name in now)
    module.load_state_dict(weights)
    return same
