"""Sharded tensors: a folder with one safetensors file per process, written by `torch.distributed.checkpoint`.

The header of a file contains the offset of each shard in its tensor. Therefore any number of processes can read what
any other number has written, and one process can assemble the tensors.
"""

import contextlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from contrastive_encoders.io.manifest import CorruptFileError

OFFSETS = "DCP_SHARDING_INFO"  # in the header of a file, as torch writes it
BLOCK = 2**24

Sums = dict[str, tuple[int, int]]  # file name -> its size in bytes and its crc32


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> Sums:
    """Write full or sharded tensors to a new folder of shards, and return the sizes and checksums of its files. This is
    a collective operation; every rank has the same names.

    Raises:
        OSError: a rank cannot write; it is raised on all ranks.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    with _plain_errors():
        dcp.save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    own = {path.name: _checksum(path) for path in folder.glob(f"shard-{dist.get_rank() + 1:05d}-*")}
    every: list[Sums] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, own)
    return {name: found for of_rank in every for name, found in of_rank.items()}


def read_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Load the values of full or sharded tensors in place from a folder of shards. Other names in the folder are
    ignored. This is a collective operation.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    with _plain_errors():
        dcp.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)))


def compare_shards(folder: Path, sums: Sums) -> None:
    """Check that shard files have the recorded sizes and checksums.

    Raises:
        CorruptFileError: a file does not exist, or differs from what was written.
    """
    for name, (size, checksum) in sums.items():
        path = folder / name
        try:
            found = _checksum(path) if path.stat().st_size == size else (path.stat().st_size, 0)
        except OSError as error:
            raise CorruptFileError(f"the shard {path} cannot be read ({error.strerror})") from error
        if found != (size, checksum):
            raise CorruptFileError(f"the shard {path} has changed since it was written")


class _Shard(NamedTuple):
    row: int  # row of the full tensor at which the shard begins
    path: Path
    shape: tuple[int, ...]


class Shards(Mapping[str, Tensor]):
    """Read-only mapping from names to full tensors, which are read from a folder of shards. A tensor is read from its
    shards at each access.

    Args:
        folder: the folder that `write_shards` wrote.
        prefix: prefix of the names in the folder; other names are ignored. The mapping has the names without it.
        same: names of tied weights -> the name under which the weight was written.
    """

    def __init__(self, folder: Path, prefix: str, same: Mapping[str, str]) -> None:
        self.folder, self.prefix, self.same = folder, prefix, same
        self._shards = defaultdict[str, list[_Shard]](list)
        for path in sorted(folder.glob("*.safetensors")):
            with _open(path) as file:
                offsets = json.loads(file.metadata()[OFFSETS])
                for name in file.keys():  # noqa: SIM118  it is no mapping
                    shape = tuple(file.get_slice(name).get_shape())
                    self._shards[name].append(_Shard(sum(offsets[name]["saved_offsets"]), path, shape))

    def __iter__(self) -> Iterator[str]:
        own = (name.removeprefix(self.prefix) for name in self._shards if name.startswith(self.prefix))
        yield from own
        yield from self.same

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Tensor:
        shards = [self._read(shard.path, name) for shard in self._of(name)]
        return shards[0] if len(shards) == 1 else torch.cat(shards)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        shapes = [shard.shape for shard in self._of(name)]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()

    def _of(self, name: str) -> "list[_Shard]":
        if self.full(name) not in self._shards:
            raise KeyError(name)
        return sorted(self._shards[self.full(name)])

    def full(self, name: str) -> str:
        """Return the full name under which the tensor ``name`` is stored in the folder of shards."""
        return self.prefix + self.same.get(name, name)

    def _read(self, path: Path, name: str) -> Tensor:
        with _open(path) as file:
            tensor: Tensor = file.get_tensor(self.full(name))
        return tensor


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return a mapping from names to shapes, without reading the tensors."""
    if isinstance(tensors, Shards):
        return {name: tensors.shape(name) for name in tensors}
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CorruptFileError(f"the shard {path} cannot be read ({error})") from error


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Context manager that raises the original error of a rank instead of the exception in which torch wraps it, which
    `except Exception` does not catch.
    """
    try:
        yield
    except CheckpointException as error:
        met = [one for one, _ in error.failures.values()]
        raise next((one for one in met if isinstance(one, OSError)), RuntimeError(str(error))) from error


def _checksum(path: Path) -> tuple[int, int]:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum = zlib.crc32(block, checksum)
    return path.stat().st_size, checksum
