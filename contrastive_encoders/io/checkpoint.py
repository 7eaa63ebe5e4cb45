"""Safe reading of checkpoints: complete, with the checksum that was written, and without executing anything.

The file is a zip, as torch writes it: each of its entries has a sum, which torch itself does not compare. Weights and
optimiser state of a sharded model are not in it, but in a folder beside it, whose name and sums it has.
"""

import functools
import os
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

from contrastive_encoders.core import check_version
from contrastive_encoders.io.atomic import atomic_file, atomic_link, remove
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.io.sharded_tensors import Shards, compare_shards

VERSION = "record_version"  # an entry, as "objective" of every checkpoint of a run
SHARDS = "shards"  # the entry that names the folder, the sums of its files, and weights that are others by another name
OF_SHARDS = re.compile(r"shards-\d+(-\d+)?")
OF_WEIGHTS, OF_OPTIMIZER = "state_dict.", "optimizer_states.{}."  # what names in the folder begin with

UNREADABLE = (RuntimeError, OSError, EOFError, KeyError, ValueError, zlib.error, zipfile.BadZipFile)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Its entries, tensors mapped from the file; ``state_dict`` of a sharded one is read tensor by tensor.

    Raises:
        InputError: another version of the project wrote it.
        Damaged: it is cut short, a byte of it has changed, it is something else, or it holds what could run code.
        FileNotFoundError: it is not there.
    """
    path = Path(path)
    about = path.stat()
    try:
        _compare(path, about.st_size, about.st_mtime_ns)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise CorruptFileError("it holds objects that could run code, and such are never loaded") from error
    except UNREADABLE as error:
        why = textwrap.shorten(str(error), 160, placeholder=" ...") or type(error).__name__
        raise CorruptFileError(f"cut short or damaged: {why}") from error
    if not isinstance(found, dict):
        raise CorruptFileError(f"wanted entries by name, got {type(found).__name__}")
    if "objective" in found:
        hint = "Train again. Exported encoders, such as RUN/encoder, can still be loaded."
        check_version(found.get(VERSION), "a checkpoint", location=str(path), hint=hint)
    if SHARDS in found:
        try:
            _compare_shards(path, about.st_size, about.st_mtime_ns)
            found["state_dict"] = weights = Shards(shards_of(path, found), OF_WEIGHTS, dict(found[SHARDS]["same"]))
            for name in weights.same:
                weights.shape(name)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise CorruptFileError(f"what it says of its shards is damaged: {error}") from error
    return found


def shards_of(path: Path, checkpoint: Mapping[str, Any]) -> Path:
    """The folder that has the shards of a checkpoint.

    Raises:
        Damaged: the checkpoint names none that could have been written with it.
    """
    name = str(checkpoint[SHARDS]["folder"])
    if OF_SHARDS.fullmatch(name) is None:
        raise CorruptFileError(f"it names {name!r} as the folder of its shards")
    return path.parent / name


def with_whole_optimizers(path: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a sharded checkpoint with whole optimiser states, which number the weights as the optimiser
    of one process does.
    """
    states = []
    for place, state in enumerate(checkpoint["optimizer_states"]):
        names = [name for group in state["param_groups"] for name in group["params"]]
        number = {name: place for place, name in enumerate(names)}
        kept: dict[int, dict[str, Tensor]] = {}
        for name, tensor in Shards(shards_of(path, checkpoint), OF_OPTIMIZER.format(place), {}).items():
            weight, _, key = name.rpartition(".")
            kept.setdefault(number[weight], {})[key] = tensor
        groups = [group | {"params": [number[name] for name in group["params"]]} for group in state["param_groups"]]
        states.append({"state": kept, "param_groups": groups})
    return checkpoint | {"optimizer_states": states}


def remove_optimizer_states(path: Path) -> None:
    """Write a checkpoint without its optimizer states in its place. One in shards stays as it is."""
    found = load_checkpoint(path)
    if SHARDS not in found and found.pop("optimizer_states", None) is not None:
        with atomic_file(path) as part:
            torch.save(found, part)


def new_shards(folder: Path, step: int) -> str:
    """A name that no folder of shards has there."""
    names = chain([f"shards-{step}"], (f"shards-{step}-{number}" for number in count(2)))
    return next(name for name in names if not (folder / name).exists())


def remove_unused_shards(folder: Path) -> None:
    """Remove shards that no checkpoint beside them names, such as those of one that was replaced or never finished."""
    unused = set(folder.glob("shards-*"))
    if not unused:
        return
    for path in folder.glob("*.ckpt"):
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, *UNREADABLE):
            return  # which ones it names is not known
        if SHARDS in found:
            unused.discard(path.parent / str(found[SHARDS]["folder"]))
    for shards in unused:
        remove(shards)


def link_checkpoint(source: Path, target: Path) -> None:
    """Give a checkpoint a second name in another folder, with its shards."""
    found = load_checkpoint(source)
    if SHARDS in found:
        shards, copy = shards_of(source, found), target.parent / shards_of(source, found).name
        if not copy.exists() or not copy.samefile(shards):
            remove(copy)
            shutil.copytree(shards, copy, copy_function=_link)
    atomic_link(source, target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@functools.lru_cache(maxsize=64)
def _compare_shards(path: Path, size: int, changed: int) -> None:
    found = torch.load(path, map_location="cpu", weights_only=True)
    compare_shards(shards_of(path, found), found[SHARDS]["files"])


@functools.lru_cache(maxsize=64)  # a command looks at one several times
def _compare(path: Path, size: int, changed: int) -> None:
    with zipfile.ZipFile(path) as archive:
        if entry := archive.testzip():
            raise ValueError(f"{entry} has changed since it was written")
