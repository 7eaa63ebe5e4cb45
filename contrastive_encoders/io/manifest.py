"""Read and write records (JSON objects), such as the size, sha256, and origin of each input file."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.io.atomic import atomic_write

ADDRESSES = "addresses"  # folder of the cache with downloaded files
ORIGIN = "address.json"  # in a parent folder of a downloaded file: its address, size, and version
MAX_LISTED_FILES = 10_000  # individually; the checksum is over all


class DataFile(NamedTuple):
    """A data file in the manifest of a run."""

    path: Path  # absolute; the cached copy of a downloaded file
    bytes: int
    sha256: str
    split: str | None  # split of the rows that were used; None: all rows
    held_out: str  # lines of the rows that were held out, as `ranges_of` writes them


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
    """Read a file that contains a JSON object.

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
    """Return the manifest of the files that were read: their absolute paths, sizes, and SHA-256 checksums. For a
    downloaded file, the path is the address, and ``cached`` is the path of the copy. All files are read.
    """
    files = [
        {"path": str(path.absolute()), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
        | ({"cached": str(path.absolute())} | origin if (origin := read_origin(path)) else {})
        for path in paths
    ]
    return {
        "number_of_files": len(files),
        "files": files[:MAX_LISTED_FILES],
        "sha256": sha256_of_all([str(file["sha256"]) for file in files]),
    }


def files_in(manifest: Any) -> Iterator[DataFile]:
    """Yield the files in a data manifest or a list of manifests, including those of a mixture's parts."""
    if isinstance(manifest, list):
        for one in manifest:
            yield from files_in(one)
    elif isinstance(manifest, Mapping):
        for file in manifest.get("files", ()):
            if isinstance(file, Mapping) and {"path", "bytes", "sha256"} <= file.keys():
                path = file.get("cached", file["path"])
                held_out = manifest.get("lines_not_trained_on", {}).get(path, "")
                yield DataFile(Path(path), file["bytes"], file["sha256"], manifest.get("split"), held_out)
        yield from files_in([value for key, value in manifest.items() if key != "files"])


def ranges_of(numbers: Iterable[int]) -> str:
    """Return the numbers in increasing order as ranges, such as "2-4,9"."""
    runs = [[*run] for _, run in groupby(enumerate(sorted(set(numbers))), lambda one: one[1] - one[0])]
    return ",".join(str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs)


def numbers_in(ranges: str) -> Iterator[int]:
    """Yield the numbers of ranges such as "2-4,9"."""
    for one in filter(None, ranges.split(",")):
        start, _, end = one.partition("-")
        yield from range(int(start), int(end or start) + 1)
