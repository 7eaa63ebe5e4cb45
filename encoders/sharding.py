"""Sharding of weights over processes, layer by layer (FSDP2, `torch.distributed.fsdp.fully_shard`).

A layer is gathered before its forward and backward computation and freed afterwards. Every forward pass is therefore a
collective operation, and all ranks must compute equally many chunks. Embeddings, which may be tied to a language-model
head, and all other weights outside the layers are gathered for an entire training step or evaluation.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from contrastive_encoders.compat import local_slices, make_root, materialize
from contrastive_encoders.encoders.layers import layers_of, no_layers
from contrastive_encoders.io.sharded_tensors import Shards, read_shards
from contrastive_encoders.losses.gather import ranks

if TYPE_CHECKING:  # an encoder is loaded without Lightning, which takes a second to import
    import pytorch_lightning as pl


def shard(module: nn.Module, transformer: PreTrainedModel, mesh: DeviceMesh) -> FSDPModule:
    """Shard the weights of a module over a one-dimensional mesh, in place, and return the module.

    Ranks without weights receive their shard from rank 0. This is a collective operation.

    Raises:
        InputError: If the transformer has no layers with separate weights.
    """
    layers = layers_of(cast(PreTrainedModel, transformer.base_model))
    of_layers = {weight for layer in layers for weight in layer.parameters()}
    places = Counter(weight for _, weight in module.named_parameters(remove_duplicate=False) if weight in of_layers)
    if not layers or max(places.values()) > 1:
        raise no_layers("trainer", "fsdp", "ddp", transformer)
    whole = module.state_dict() if dist.get_rank() == 0 else {}
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    sharded = fully_shard(module, mesh=mesh)
    _send_to_absent(module, whole, mesh)
    register_fsdp_forward_method(module, "training_step")
    make_root(sharded)
    return sharded


def _send_to_absent(module: nn.Module, whole: dict[str, Any], mesh: DeviceMesh) -> None:
    """Send to each rank its shard of rank 0's weights, if any rank has no weights."""
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
def gather_weights(modules: Iterable[FSDPModule]) -> Iterator[None]:
    """Context manager in which every rank has the full weights of sharded modules, except for the weights of their
    layers.

    Use it for forward passes outside a training step.
    """
    for module in modules:
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.reshard()


def agree_on_chunks(number: int, recomputed: bool, device: torch.device) -> tuple[int, bool]:
    """Return the maximum number of chunks on any rank, and whether any rank recomputes chunks in the backward pass.

    This is a collective operation.
    """
    largest = torch.tensor([number, recomputed], device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest[0]), bool(largest[1])


def is_first_rank() -> bool:
    """Return whether this process is rank 0 or the only process."""
    return ranks()[0] == 0


def broadcast_from_first_rank(value: Any) -> Any:
    """Return rank 0's value on all ranks. This is a collective operation."""
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor from all ranks (a collective operation). Return any other tensor unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a sharded tensor. Return any other tensor unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def is_part_of(whole: Tensor, tensor: Tensor) -> bool:
    """Return whether a tensor, or this rank's shard of a sharded tensor, equals the corresponding part of the tensor
    ``whole``.
    """
    if isinstance(tensor, DTensor):
        whole = whole[local_slices(tensor)]
    return torch.equal(local_tensor(tensor).cpu(), whole.cpu())


def load_weights(module: "pl.LightningModule", weights: Mapping[str, Tensor]) -> bool:
    """Load weights into a module, from full tensors or from a sharded checkpoint. Each rank of a sharded module keeps
    its shard.

    Returns:
        True if the module already had these weights. Always False for a sharded module, which is not compared.
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
