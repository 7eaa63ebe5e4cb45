"""Data modules as ``data=NAME`` of the command line makes them, and their batches."""

import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from contrastive_encoders.core import Ragged
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.datamodules.sources import records, text_source
from contrastive_encoders.datamodules.sources.hub_datasets import DEFAULT_HUB_KEYS
from contrastive_encoders.training.composition.config_store import config_node
from tests.objectives import made


def with_defaults(reader: Callable[..., Any], name: str, *given: Any, **keys: Any) -> Any:
    """Return the keys of ``data=NAME`` with their defaults, overridden by the given keys."""
    wanted = list(inspect.signature(reader).parameters)[len(given) :]
    defaults = config_node(DATA_CONFIGS[name])
    return reader(*given, **{name: defaults[name] for name in wanted if name in defaults and name not in keys} | keys)


TextSource = partial(with_defaults, text_source.TextSource, "text", column="text", hub=DEFAULT_HUB_KEYS)
RecordSource = partial(with_defaults, records.RecordSource, "triplets", hub=DEFAULT_HUB_KEYS)


def data_module(name: str, **keys: Any) -> Any:
    """Make the data module of ``data=NAME`` with these keys; paths are as on the command line."""
    keys = {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    return made("data", name, **{"batch_size": 4, "quiet": True, **keys})


def as_rank(data: Any, rank: int, world: int, epoch: int = 0) -> Any:
    """Return the data module as a trainer of this rank has it, ready for batches."""
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world, current_epoch=epoch, strategy=strategy)
    data.prepare_data()
    data.setup()
    return data


def batches(data: Any, count: int | None = None, rank: int = 0, world: int = 1, epoch: int = 0) -> list[Any]:
    """Return the first batches of an epoch, or all of them, as this rank's trainer gets them."""
    return list(itertools.islice(as_rank(data, rank, world, epoch).train_dataloader(), count))


def sequences_of(ragged: Ragged, ids: torch.Tensor | None = None) -> list[list[int]]:
    """Return the ids of each sequence; ``ids`` are other values for the same tokens."""
    return [part.tolist() for part in torch.split(ragged.ids if ids is None else ids, ragged.lengths.tolist())]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write one JSON object per line."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
