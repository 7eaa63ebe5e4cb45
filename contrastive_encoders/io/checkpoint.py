"""Load checkpoints safely: files that are truncated or corrupted according to their checksums are rejected, and code in
them is never executed.

The file is a zip archive, as torch writes it. Each of its entries has a checksum, which torch itself does not verify.
The weights and optimizer state of a sharded model are not in the archive, but in a folder next to it. The archive
contains the name and the checksums of that folder.
"""

import functools
import pickle
import re
import shutil
import textwrap
import zipfile
import zlib
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contrastive_encoders.core import InputError, check_version
from contrastive_encoders.io.atomic import atomic_file, atomic_link, link_or_copy, remove
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.io.sharded_tensors import Shards, compare_shards

VERSION = "record_version"  # an entry of every checkpoint of a run, as is "objective"
SHARDS = "shards"  # the entry that contains the folder, the checksums of its files, and the names of tied weights
SHARD_FOLDER_PATTERN = re.compile(r"shards-\d+(-\d+)?")
WEIGHTS_PREFIX, OPTIMIZER_PREFIX = "state_dict.", "optimizer_states.{}."  # prefixes of the names in the folder

UNREADABLE = (RuntimeError, OSError, EOFError, KeyError, ValueError, zlib.error, zipfile.BadZipFile)


def is_checkpoint(path: str | Path) -> bool:
    """Return whether a file is a checkpoint, which may be damaged, as opposed to a file with other contents."""
    path = Path(path)
    if not path.is_file() or path.suffix == ".ckpt":
        return path.is_file()
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("data.pkl") for name in archive.namelist())


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the entries of a checkpoint, with memory-mapped tensors. A sharded ``state_dict`` is read tensor by
    tensor.

    Raises:
        InputError: another version of the project wrote it.
        CorruptFileError: it is truncated, a byte has changed, it is not a checkpoint, or it contains objects that could
            execute code.
        FileNotFoundError: it does not exist.
    """
    path = Path(path)
    about = path.stat()
    try:
        _compare(path, about.st_size, about.st_mtime_ns)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CorruptFileError(
            "the file contains objects that could execute code; such objects are never loaded"
        ) from error
    except UNREADABLE as error:
        why = textwrap.shorten(str(error), 160, placeholder=" ...") or type(error).__name__
        raise CorruptFileError(f"truncated or damaged: {why}") from error
    if not isinstance(found, dict):
        raise CorruptFileError(f"expected a dict, got {type(found).__name__}")
    if "objective" in found:
        hint = "Train again. Exported encoders, such as RUN/encoder, can still be loaded."
        check_version(found.get(VERSION), "a checkpoint", location=str(path), hint=hint)
    if SHARDS in found:
        try:
            _compare_shards(path, about.st_size, about.st_mtime_ns)
            found["state_dict"] = weights = Shards(shards_of(path, found), WEIGHTS_PREFIX, dict(found[SHARDS]["same"]))
            for name in weights.same:
                weights.shape(name)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise CorruptFileError(f"the checkpoint's record of its shards is damaged: {error}") from error
    return found


def load_intact(path: Path, expected: str, **fields: Any) -> dict[str, Any]:
    """Return the entries of a checkpoint, as `load_checkpoint` does.

    Args:
        expected: what the file must be, for the error message, which adds the reason in parentheses.
        fields: the other fields of the error, such as ``key`` and ``hint``.

    Raises:
        InputError: it is damaged or does not exist, or another version of the project wrote it.
    """
    try:
        return load_checkpoint(path)
    except (OSError, CorruptFileError) as error:
        raise InputError(expected=f"{expected} ({error})", **fields) from error


def shards_of(path: Path, checkpoint: Mapping[str, Any]) -> Path:
    """Return the folder with the shards of a checkpoint.

    Raises:
        CorruptFileError: the checkpoint does not contain a valid folder name.
    """
    name = str(checkpoint[SHARDS]["folder"])
    if SHARD_FOLDER_PATTERN.fullmatch(name) is None:
        raise CorruptFileError(f"{name!r} is not a valid name for a folder of shards")
    return path.parent / name


def with_full_optimizers(path: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a sharded checkpoint, with its optimizer states converted to full (unsharded) tensors. The
    weights are numbered as by the optimizer of a single process.
    """
    states = []
    for place, state in enumerate(checkpoint["optimizer_states"]):
        names = [name for group in state["param_groups"] for name in group["params"]]
        number = {name: place for place, name in enumerate(names)}
        kept: dict[int, dict[str, Tensor]] = {}
        for name, tensor in Shards(shards_of(path, checkpoint), OPTIMIZER_PREFIX.format(place), {}).items():
            weight, _, key = name.rpartition(".")
            kept.setdefault(number[weight], {})[key] = tensor
        groups = [group | {"params": [number[name] for name in group["params"]]} for group in state["param_groups"]]
        states.append({"state": kept, "param_groups": groups})
    return checkpoint | {"optimizer_states": states}


def remove_optimizer_states(path: Path) -> None:
    """Remove the optimizer states from a checkpoint file. A sharded checkpoint is not changed."""
    found = load_checkpoint(path)
    if SHARDS not in found and found.pop("optimizer_states", None) is not None:
        with atomic_file(path) as part:
            torch.save(found, part)


def new_shards(folder: Path, step: int) -> str:
    """Return an unused name for a folder of shards."""
    names = chain([f"shards-{step}"], (f"shards-{step}-{number}" for number in count(2)))
    return next(name for name in names if not (folder / name).exists())


def remove_unused_shards(folder: Path) -> None:
    """Remove the folders of shards to which no checkpoint in ``folder`` refers, such as the shards of a replaced or
    incomplete checkpoint.
    """
    unused = set(folder.glob("shards-*"))
    if not unused:
        return
    for path in folder.glob("*.ckpt"):
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, *UNREADABLE):
            return  # the shards that it refers to are unknown
        if SHARDS in found:
            unused.discard(path.parent / str(found[SHARDS]["folder"]))
    for shards in unused:
        remove(shards)


def link_checkpoint(source: Path, target: Path) -> None:
    """Hard-link a checkpoint to the path ``target``, and its shards to the same folder."""
    found = load_checkpoint(source)
    if SHARDS in found:
        shards, copy = shards_of(source, found), target.parent / shards_of(source, found).name
        if not copy.exists() or not copy.samefile(shards):
            remove(copy)
            shutil.copytree(shards, copy, copy_function=link_or_copy)
    atomic_link(source, target)


@functools.lru_cache(maxsize=64)
def _compare_shards(path: Path, size: int, changed: int) -> None:
    found = torch.load(path, map_location="cpu", weights_only=True)
    compare_shards(shards_of(path, found), found[SHARDS]["files"])


@functools.lru_cache(maxsize=64)  # a command checks a file several times
def _compare(path: Path, size: int, changed: int) -> None:
    with zipfile.ZipFile(path) as archive:
        if entry := archive.testzip():
            raise ValueError(f"{entry} has changed since it was written")
