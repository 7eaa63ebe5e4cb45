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

from contrastive_encoders.composition.config_store import config_node
from contrastive_encoders.core import Ragged
from contrastive_encoders.datamodules.data_configs import KINDS
from contrastive_encoders.datamodules.sources import raw_documents as sources
from contrastive_encoders.datamodules.sources import records
from contrastive_encoders.datamodules.sources.hub_datasets import DEFAULT_HUB_KEYS
from tests.objectives import made


def with_defaults(reader: Callable[..., Any], name: str, *given: Any, **keys: Any) -> Any:
    """What the reader makes of the keys of ``data=NAME``, but for those that are given."""
    wanted = list(inspect.signature(reader).parameters)[len(given) :]
    defaults = config_node(KINDS[name])
    return reader(*given, **{name: defaults[name] for name in wanted if name in defaults and name not in keys} | keys)


TextSource = partial(with_defaults, sources.TextSource, "text", column="text", hub=DEFAULT_HUB_KEYS)
RecordSource = partial(with_defaults, records.RecordSource, "triplets", hub=DEFAULT_HUB_KEYS)


def data_module(name: str, **keys: Any) -> Any:
    """What ``data=NAME`` makes with these keys, paths as the command line gives them."""
    keys = {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    return made("data", name, **{"batch_size": 4, "quiet": True, **keys})


def as_rank(data: Any, rank: int, world: int, epoch: int = 0) -> Any:
    """The data module as a trainer of this rank has it, ready to draw from."""
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world, current_epoch=epoch, strategy=strategy)
    data.prepare_data()
    data.setup()
    return data


def batches(data: Any, count: int | None = None, rank: int = 0, world: int = 1, epoch: int = 0) -> list[Any]:
    """The first batches of an epoch, or all of them, as this rank's trainer gets them."""
    return list(itertools.islice(as_rank(data, rank, world, epoch).train_dataloader(), count))


def sequences_of(ragged: Ragged, ids: torch.Tensor | None = None) -> list[list[int]]:
    """The ids of each sequence; ``ids`` are others that lie beside them."""
    return [part.tolist() for part in torch.split(ragged.ids if ids is None else ids, ragged.lengths.tolist())]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """A JSON object a line."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
