"""Global batches from a mixture of datasets: each batch comes from one dataset, or from all of them."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged
from contrastive_encoders.datamodules.sampling.example_order import (
    ExampleOrder,
    check_batch_size,
    uneven_batch,
)
from contrastive_encoders.datamodules.sampling.interleaving import Interleaving
from contrastive_encoders.datamodules.text_datamodule import StoredData


@contextlib.contextmanager
def naming_part(part: str) -> Iterator[None]:
    """Context manager that adds the name of a part of the mixture to the message of an `InputError`."""
    try:
        yield
    except InputError as error:
        raise error.with_prefix(f"Part {part} (data.KEY is data.parts.{part}.KEY)") from error


class MixedBatches(Dataset, ABC):
    """Base class of datasets whose items are the batches of a mixture.

    Args:
        quotas: Number of batches, or rows, of each part in an epoch.
        identity: Identity of the batch stream.
    """

    def __init__(
        self, parts: Mapping[str, StoredData], quotas: Iterable[int], *, seed: int, batch_size: int, drop_last: bool
    ) -> None:
        self.names, self.parts, self.quotas = list(parts), list(parts.values()), list(quotas)
        self.interleaving = Interleaving(self.quotas, seed)
        each = ", ".join(f"{name} {number}" for name, number in zip(parts, self.quotas, strict=True))
        self.identity = {"seed": seed, "batch_size": batch_size, type(self).__name__: each}
        self.identity |= {} if drop_last else {"drop_last": False}

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches per epoch."""


class OnePartBatches(MixedBatches):
    """Batches whose rows all come from one part (dataset of the mixture). A batch is the next one that training on that
    part alone would draw.
    """

    def __init__(
        self, parts: Mapping[str, StoredData], quotas: Iterable[int], rank: int, world: int, **keys: Any
    ) -> None:
        super().__init__(parts, quotas, **keys)
        self.batches = list[Any]()
        for name, part in parts.items():
            with naming_part(name):
                self.batches.append(part.epoch_batches(rank, world))

    def __len__(self) -> int:
        return len(self.interleaving)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        epoch, place = key
        part, number = self.interleaving.at(epoch, place)
        batches = self.batches[part]
        with naming_part(self.names[part]):
            batch = batches[divmod(epoch * self.quotas[part] + number, len(batches))]
        return batch._replace(part=self.names[part])


class AllPartsBatches(MixedBatches):
    """Batches with rows of every part, grouped by part.

    ``rows`` is the number of rows that a pass over each part draws.
    """

    def __init__(
        self,
        parts: Mapping[str, StoredData],
        quotas: Iterable[int],
        rank: int,
        world: int,
        *,
        rows: Iterable[int],
        **keys: Any,
    ) -> None:
        super().__init__(parts, quotas, **keys)
        self.rank, self.world, self.batch_size, self.rows = rank, world, keys["batch_size"], list(rows)
        examples = len(self.interleaving)
        check_batch_size(examples, self.batch_size, world)
        if examples % self.batch_size % world:
            raise uneven_batch(examples % self.batch_size, world)
        self.orders = [
            ExampleOrder(part.num_examples, 1, seed=part.settings.seed, groups=part.groups) for part in self.parts
        ]

    def __len__(self) -> int:
        return -(-len(self.interleaving) // self.batch_size)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        epoch, place = key
        ends = [min(one * self.batch_size, len(self.interleaving)) for one in (place, place + 1)]
        parts_of_batch, at = list[Any](), 0
        for part, (first, last) in enumerate(zip(*map(self.interleaving.before, ends), strict=True)):
            numbers = np.arange(first + (self.rank - at) % self.world, last, self.world)
            passes, places = np.divmod(epoch * self.quotas[part] + numbers, self.rows[part])
            parts_of_batch += [self._part_batch(part, int(one), places[passes == one]) for one in np.unique(passes)]
            at += last - first
        return concatenate_batches(parts_of_batch)

    def _part_batch(self, part: int, pass_index: int, places: np.ndarray) -> Any:
        with naming_part(self.names[part]):
            batch = self.parts[part].batch(pass_index, self.orders[part].at(pass_index, places))
        if hasattr(batch, "groups"):
            batch = batch._replace(groups=self._groups(batch, part))
        return batch._replace(part=np.repeat(self.names[part], len(places)))

    def _groups(self, batch: Any, part: int) -> torch.Tensor:
        """Make the group numbers of a part distinct from the group numbers of other parts.

        Each row of a part without groups is its own group.
        """
        kinds = 2 * len(self.parts)
        if batch.groups is None:
            return torch.from_numpy(batch.rows * kinds + 2 * part)
        groups: torch.Tensor = batch.groups * kinds + 2 * part + 1
        return groups


def concatenate_batches(batches: Sequence[Any]) -> Any:
    """Concatenate the rows of several batches of the same class, in order."""
    found = dict[str, Any]()
    for field, *values in zip(batches[0]._fields, *batches, strict=True):
        if isinstance(values[0], Ragged):
            found[field] = Ragged(
                torch.cat([one.ids for one in values]), np.concatenate([one.lengths for one in values])
            )
        elif isinstance(values[0], torch.Tensor):
            found[field] = torch.cat(values)
        elif isinstance(values[0], np.ndarray):
            found[field] = np.concatenate(values)
    if "predicted" in found:
        found["predicted"] = np.flatnonzero(found["labels"].numpy() != IGNORED_LABEL)
    return batches[0]._replace(**found)


def check_alike(samples: Mapping[str, Any]) -> None:
    """Raise `InputError` if rows of the parts cannot be combined in one batch. ``samples`` contains a batch of each
    part.
    """
    (first, sample), *others = samples.items()
    for name, other in others:
        if _description(other) != _description(sample):
            raise InputError(
                key="data.homogeneous",
                value=False,
                expected=f"parts with the same columns and lengths, but {first} has {_description(sample)}, and {name} "
                f"has {_description(other)}",
                hint="Set data.homogeneous=true, or change the columns or lengths.",
            )


def _description(batch: Any) -> str:
    """Describe the properties of a batch that must be the same for all parts: its class, the number of texts for each
    role in a row, and the maximum length.
    """
    rows = len(batch.rows)
    roles = [f"{len(one.lengths) // rows} {role}" for role, one in batch._asdict().items() if isinstance(one, Ragged)]
    length = f", truncated to {batch.max_length} tokens" if getattr(batch, "max_length", None) else ""
    return f"{type(batch).__name__} ({', '.join(roles)}{length})"
