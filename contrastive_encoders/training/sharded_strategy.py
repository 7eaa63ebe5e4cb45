"""Lightning strategy that shards weights over all processes (``trainer=fsdp``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from contrastive_encoders.encoders.optimizers import NAMES
from contrastive_encoders.encoders.sharding import load_weights
from contrastive_encoders.io.atomic import remove
from contrastive_encoders.io.checkpoint import OPTIMIZER_PREFIX, SHARDS, WEIGHTS_PREFIX, new_shards, shards_of
from contrastive_encoders.io.sharded_tensors import Shards, read_shards, write_shards
from contrastive_encoders.training.callbacks.checkpoint_io import SafeCheckpointIO


class ShardedStrategy(ModelParallelStrategy):
    """Strategy that shards the weights over all processes with FSDP2, without tensor parallelism.
    `TrainedModule.configure_model` shards the weights.

    Each rank writes its shard of the weights and optimizer state to a folder next to the checkpoint file. Checkpoints
    of one process or of DDP can also be loaded.
    """

    def __init__(self, process_group_backend: str | None = None, **options: Any) -> None:
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=True,
            process_group_backend=process_group_backend,
            **options,
        )

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Save a sharded checkpoint. This is a collective operation; ``checkpoint_io`` stores a write error on all
        ranks.
        """
        path, io = Path(self.broadcast(filepath)), cast(SafeCheckpointIO, self.checkpoint_io)
        name = self.broadcast(new_shards(path.parent, checkpoint["global_step"]) if self.is_global_zero else "")
        weights, optimizers = checkpoint.pop("state_dict"), checkpoint.pop("optimizer_states", [])
        same = _shared(cast(nn.Module, self.model), weights)
        tensors = {f"{WEIGHTS_PREFIX}{name}": tensor for name, tensor in weights.items() if name not in same}
        for place, optimizer in enumerate(optimizers):
            tensors |= _flat(optimizer["state"], place)
        try:
            sums = write_shards(path.parent / name, tensors)
        except OSError as error:
            io.error = error
            if self.is_global_zero:
                remove(path.parent / name)
            return
        checkpoint["optimizer_states"] = [{"param_groups": optimizer["param_groups"]} for optimizer in optimizers]
        checkpoint[SHARDS] = {"folder": name, "files": sums, "same": same}
        if self.is_global_zero:
            io.save_checkpoint(checkpoint, path)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        path, model = Path(self.broadcast(checkpoint_path)), cast(nn.Module, self.model)
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        folder = shards_of(path, checkpoint) if SHARDS in checkpoint else None
        if folder:
            checkpoint["state_dict"] = Shards(folder, WEIGHTS_PREFIX, checkpoint[SHARDS]["same"])
        load_weights(cast(Any, model), checkpoint["state_dict"])
        saved = checkpoint["optimizer_states"]
        for place, (optimizer, state) in enumerate(zip(self.optimizers, saved, strict=True)):
            own: dict[str, Any] = get_optimizer_state_dict(model, optimizer)
            if folder:
                read_shards(folder, _flat(own["state"], place))
                state["state"] = own["state"]
            else:
                state = _by_names(state, own["param_groups"])
            options = StateDictOptions(full_state_dict=folder is None)
            set_optimizer_state_dict(model, optimizer, state, options=options)
        return checkpoint


def _by_names(state: dict[str, Any], groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the optimizer state of an unsharded checkpoint, keyed by weight names. Such a checkpoint numbers the
    weights in the order of the parameter groups.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    own = [name for group in groups for name in group["params"]]
    saved = [name for group in state["param_groups"] for name in group.get(NAMES, ())]
    name = dict(zip(numbers, saved if {*saved} == {*own} else own, strict=True))
    plain = [{key: value for key, value in group.items() if key != NAMES} for group in state["param_groups"]]
    return {
        "state": {name[number]: kept for number, kept in state["state"].items()},
        "param_groups": [group | {"params": [name[one] for one in group["params"]]} for group in plain],
    }


def _flat(state: Mapping[str, Mapping[str, Tensor]], place: int) -> dict[str, Tensor]:
    prefix = OPTIMIZER_PREFIX.format(place)
    return {f"{prefix}{name}.{key}": tensor for name, kept in state.items() for key, tensor in kept.items()}


def _shared(model: nn.Module, names: Mapping[str, Any]) -> dict[str, str]:
    """For weights with several names, such as an output head that is tied to the embedding matrix, return a mapping of
    each further name to the first name.
    """
    first: dict[nn.Parameter, str] = {}
    same = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if name in names and first.setdefault(weight, name) != name:
            same[name] = first[weight]
    return same
