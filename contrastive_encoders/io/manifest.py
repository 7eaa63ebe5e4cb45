"""Read and write records (JSON objects), such as the size, sha256, and origin of each input file."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.io.atomic import atomic_write

MAX_LISTED_FILES = 100  # individually; the checksum is over all
ADDRESSES = "addresses"  # folder of the cache with downloaded files
ORIGIN = "address.json"  # in a parent folder of a downloaded file


log = logging.getLogger(__name__)


class CorruptFileError(ValueError):
    """Raised if a record cannot be parsed; the message is a short reason."""


def write_record(path: Path, entries: Mapping[str, Any], *, sync: bool = True, **options: Any) -> None:
    """Write a record as JSON atomically; ``options`` are arguments of ``json.dumps``.

    Raises:
        ValueError: a number is NaN or infinite, which JSON does not support.
    """
    text = json.dumps(entries, ensure_ascii=False, allow_nan=False, **({"indent": 1} | options))
    atomic_write(path, f"{text}\n", sync=sync)


def read_record(path: Path) -> dict[str, Any]:
    """Read a record, which must be a JSON object.

    Raises:
        CorruptFileError: the file is not a JSON object.
        OSError: it cannot be read.
    """
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8
        raise CorruptFileError(f"truncated or damaged: {error}") from error
    if not isinstance(found, dict):
        raise CorruptFileError(f"expected an object, got {type(found).__name__}")
    return found


def is_finished(folder: Path) -> bool:
    """Return whether a run has finished and its results are undamaged. Damaged results do not count, because the run
    writes them again.
    """
    path = folder / "results.json"
    return path.is_file() and not find_damage(path)


def find_damage(path: Path) -> str:
    """Return a short reason why a record cannot be read, or an empty string if it is readable or does not exist."""
    try:
        read_record(path)
    except FileNotFoundError:
        return ""
    except (OSError, CorruptFileError) as error:
        return str(error)
    return ""


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_all(sums: Sequence[str]) -> str:
    """Combine the checksums of several files, in order, into one checksum. It does not change if the files are moved or
    renamed.
    """
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def write_origin(folder: Path, address: str, size: int, version: str) -> None:
    """Write the origin (address, size, and version) of a downloaded file to a record in the folder of the file."""
    write_record(folder / ORIGIN, {"path": address, "bytes": size, "version": version})


def read_origin(path: Path) -> dict[str, Any]:
    """Return the address, size, and version of a downloaded file, or an empty mapping for a file that was not
    downloaded.
    """
    folder = next((one for one in path.resolve().parents if (one / ORIGIN).is_file()), None)
    try:
        return read_record(folder / ORIGIN) if folder and folder.parent.name == ADDRESSES else {}
    except (OSError, CorruptFileError):
        return {}


def describe_files(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the manifest of the files that were read: their paths, sizes, and SHA-256 checksums, and the addresses of
    downloaded files. All files are read.
    """
    files = [
        {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)} | read_origin(path)
        for path in paths
    ]
    return {
        "number_of_files": len(files),
        "files": files[:MAX_LISTED_FILES],
        "sha256": sha256_of_all([str(file["sha256"]) for file in files]),
    }
