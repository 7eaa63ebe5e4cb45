"""Provenance records: JSON files, and sizes, sha256 and origin of the files that were read."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.io.atomic import atomic_write

MOST_FILES_LISTED = 100  # one by one; the sum is over all
ADDRESSES = "addresses"  # of the cache: what was fetched from some
ORIGIN = "address.json"  # above what was fetched from an address


log = logging.getLogger(__name__)


class CorruptFileError(ValueError):
    """A record cannot be parsed; the message says why, in a few words."""


def write_record(path: Path, entries: Mapping[str, Any], *, sync: bool = True, **options: Any) -> None:
    """Write JSON; ``options`` are those of json.dumps. The file appears atomically.

    Raises:
        ValueError: a number is NaN or infinite, which JSON has no name for.
    """
    text = json.dumps(entries, ensure_ascii=False, allow_nan=False, **({"indent": 1} | options))
    atomic_write(path, f"{text}\n", sync=sync)


def read_record(path: Path) -> dict[str, Any]:
    """
    Raises:
        Damaged: the file is no JSON object.
        OSError: it cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8
        raise CorruptFileError(f"cut short or damaged: {error}") from error
    if not isinstance(found, dict):
        raise CorruptFileError(f"wanted an object, got {type(found).__name__}")
    return found


def is_finished(folder: Path) -> bool:
    """Whether a run has left its results there; damaged ones it writes again, and says so."""
    path = folder / "results.json"
    return path.is_file() and not damage_of(path)


def damage_of(path: Path) -> str:
    """Why a record cannot be read, in a few words; empty where it can, or where there is none."""
    try:
        read_record(path)
    except FileNotFoundError:
        return ""
    except (OSError, CorruptFileError) as error:
        return str(error)
    return ""


def sha256_of(path: Path) -> str:
    """The sum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_all(sums: Sequence[str]) -> str:
    """One sum for several files, from theirs in order: moving or renaming the files changes nothing."""
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def leave_origin(folder: Path, address: str, size: int, version: str) -> None:
    """Write down where the file below came from."""
    write_record(folder / ORIGIN, {"path": address, "bytes": size, "version": version})


def origin_of(path: Path) -> dict[str, Any]:
    """Address, size and version of a file that was fetched; empty of others."""
    folder = next((one for one in path.resolve().parents if (one / ORIGIN).is_file()), None)
    try:
        return read_record(folder / ORIGIN) if folder and folder.parent.name == ADDRESSES else {}
    except (OSError, CorruptFileError):
        return {}


def describe_files(paths: Sequence[Path]) -> dict[str, Any]:
    """The entries of a manifest that say which files were read, at which address; reads all of them."""
    files = [
        {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)} | origin_of(path) for path in paths
    ]
    return {
        "number_of_files": len(files),
        "files": files[:MOST_FILES_LISTED],
        "sha256": sha256_of_all([str(file["sha256"]) for file in files]),
    }
