"""What is written down about files: a JSON record that notices its own damage, sizes and sha256 of what was read."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from files.whole import write_whole

MOST_FILES_LISTED = 100  # one by one; the sum is over all
SUMS = "sums.json"  # in a folder: those of its files
ADDRESSES = "addresses"  # of the cache: what was fetched from some
ORIGIN = "address.json"  # above what was fetched from an address
CHECKSUM = "checksum"  # the entry of a record that is over all others


log = logging.getLogger(__name__)


class Damaged(ValueError):
    """A record is not what was written; it says in a few words what is wrong with it."""


def write_record(path: Path, entries: Mapping[str, Any], *, sync: bool = True, **options: Any) -> None:
    """Write JSON with a sum over it; ``options`` are those of json.dumps. The file appears at once.

    Raises:
        ValueError: a number is NaN or infinite, which JSON has no name for.
    """
    plain = json.loads(json.dumps(entries, allow_nan=False))
    plain.pop(CHECKSUM, None)
    summed = {**plain, CHECKSUM: _checksum(plain)}
    write_whole(path, json.dumps(summed, ensure_ascii=False, **({"indent": 1} | options)) + "\n", sync=sync)


def read_record(path: Path) -> dict[str, Any]:
    """Read such a record, without the sum; one whose sum was taken out, to change it by hand, is taken as it is.

    Raises:
        Damaged: it is no JSON object, or its sum is another.
        OSError: it cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8
        raise Damaged(f"cut short or damaged: {error}") from error
    if not isinstance(found, dict):
        raise Damaged(f"wanted an object, got {type(found).__name__}")
    if found.pop(CHECKSUM, None) not in (None, _checksum(found)):
        raise Damaged(f"changed since it was written; where you meant to change it, take out its {CHECKSUM!r}")
    return found


def is_finished(folder: Path) -> bool:
    """Whether a run has left its results there; damaged ones it writes again, and says so."""
    path = folder / "results.json"
    return path.is_file() and not damage_of(path)


def damage_of(path: Path) -> str:
    """Why a record is not what was written, in a few words; empty where it is sound, or is not there."""
    try:
        read_record(path)
    except FileNotFoundError:
        return ""
    except (OSError, Damaged) as error:
        return str(error)
    return ""


def _checksum(plain: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}"


def leave_sums(folder: Path) -> None:
    """Write down the sums of the files of a folder that has become whole."""
    write_record(folder / SUMS, {path.name: sha256_of(path) for path in sorted(folder.iterdir())})


def is_as_left(folder: Path, *names: str) -> bool:
    """Whether these files are in a folder, and all of it is as `leave_sums` found it; a change is told."""
    if not all((folder / name).is_file() for name in names):
        return False
    try:
        sums = read_record(folder / SUMS)
        changed = [name for name in sums if _sum_now(folder / name, (folder / name).stat()) != sums[name]]
    except (OSError, Damaged) as error:
        changed = [str(error)]
    if changed:
        log.warning("%s: %s has changed since it was written. It is built anew.", folder, changed[0])
    return not changed


def _sum_now(path: Path, about: os.stat_result) -> str:
    return _sum_then(path, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=64)  # a command looks at one several times
def _sum_then(path: Path, size: int, changed: int) -> str:
    return sha256_of(path)


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
    except (OSError, Damaged):
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
