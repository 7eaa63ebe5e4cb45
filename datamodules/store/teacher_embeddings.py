"""Store of teacher embeddings, next to the token store: memory-mapped, 16-bit, written in parts.

The store is a directory with ``vectors.bin`` and ``meta.json``. The latter contains the checksum of each complete part.
If a process is killed, these parts remain and the next process resumes after them.
"""

import hashlib
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from filelock import FileLock

from contrastive_encoders.core import InputError
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.io.atomic import remove, translate_write_errors
from contrastive_encoders.io.manifest import read_record, write_record

VERSION = 1  # part of the key: increase it when the same embeddings would be stored differently
PART = 4096  # rows per write, the most that a killed process loses
DTYPE = np.dtype("<f2")
META, VECTORS = "meta.json", "vectors.bin"

log = logging.getLogger(__name__)

Embed = Callable[[list[str]], np.ndarray]  # texts -> (texts, width) float32


class TeacherEmbeddingStore:
    """Memory-mapped teacher embeddings of R rows with C texts each; an embedding has W dimensions.

    Args:
        directory: Directory of the store.
        rows: Rows of the token store that have embeddings, in ascending order. ``None`` means all rows.
        verify: Also compare the content with its checksums.

    Raises:
        InputError: The store is incomplete, or its content does not match the checksums.
    """

    def __init__(self, directory: str | Path, rows: np.ndarray | None = None, *, verify: bool = False) -> None:
        self.directory, self.rows = Path(directory), rows
        try:
            meta = read_record(self.directory / META)
            shape = int(meta["rows"]), int(meta["texts_per_row"]), int(meta["width"])
            parts, path = list(meta["parts"]), self.directory / VECTORS
            size = DTYPE.itemsize * int(np.prod(shape))
            if len(parts) < -(-shape[0] // PART):
                raise ValueError(f"only {len(parts)} of {-(-shape[0] // PART)} parts exist")
            if path.stat().st_size != size:
                raise ValueError(f"{VECTORS} has {path.stat().st_size} bytes instead of {size}")
            if verify and _sums(path, size, DTYPE.itemsize * PART * shape[1] * shape[2]) != parts:
                raise ValueError("the embeddings have changed since they were written")
            self.texts_per_row, self.width = shape[1:]
            self._vectors = np.asarray(np.memmap(path, dtype=DTYPE, mode="r", shape=shape))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                location=str(directory), expected=f"a complete store of a teacher's embeddings ({error})"
            ) from error

    def __len__(self) -> int:
        return len(self._vectors)

    def of(self, rows: np.ndarray) -> torch.Tensor:
        """Return the teacher embeddings of N rows of the token store, (N, C, W) float16."""
        places = rows if self.rows is None else np.searchsorted(self.rows, rows)
        return torch.from_numpy(self._vectors[places])


def build_or_resume(
    directory: Path, texts: Callable[[], Iterable[tuple[str, ...]]], rows: int, embed: Embed, *, quiet: bool = False
) -> int:
    """Write the teacher embeddings of ``texts`` that the store does not contain yet.

    A damaged store is rebuilt.

    Returns:
        The embedding dimension.

    Raises:
        InputError: The data has a different number of rows, an embedding is not finite, or the directory is read-only.
        OutputError: The disk is full.
    """
    with translate_write_errors(directory, "data.cache_dir"):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{directory}.lock"):  # other processes wait here
            meta = _existing_meta(directory, rows)
            if meta is None or len(meta["parts"]) < -(-rows // PART):
                meta = _write(directory, meta, texts(), rows, embed, quiet)
    return int(meta["width"])


def _existing_meta(directory: Path, rows: int) -> dict[str, Any] | None:
    """Return the metadata of an existing store up to its first damaged or missing part.

    If no part is intact, return None and remove the store.
    """
    if not directory.exists():
        return None
    try:
        meta = read_record(directory / META)
        each = int(meta["texts_per_row"]) * int(meta["width"]) * DTYPE.itemsize
        path, parts = directory / VECTORS, list(meta["parts"])
        found = _sums(path, min(len(parts) * PART * each, rows * each, path.stat().st_size), PART * each)
        intact = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(found, parts, strict=False))))
        if meta["rows"] != rows or not intact:
            raise ValueError("the content does not match the checksums")
        if intact < len(parts):
            log.warning("%s: damaged. The teacher's embeddings after row %d are computed again.", path, intact * PART)
        meta["parts"] = parts[:intact]
    except FileNotFoundError:  # killed before the first part was complete
        meta = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: incomplete or damaged (%s). The teacher's embeddings are computed again.", directory, error)
        meta = None
    if meta is None:
        remove(directory)
    return meta


def _sums(path: Path, size: int, part: int) -> list[str]:
    """Return the SHA-256 of each block of ``part`` bytes in the first ``size`` bytes of a file."""
    with path.open("rb") as file:
        if path.stat().st_size < size:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {size}")
        return [_sum_of(file, min(part, size - at)) for at in range(0, size, part)]


def _sum_of(file: BinaryIO, size: int) -> str:
    return hashlib.sha256(file.read(size)).hexdigest()


def _write(
    directory: Path,
    existing: dict[str, Any] | None,
    texts: Iterable[tuple[str, ...]],
    rows: int,
    embed: Embed,
    quiet: bool,
) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    meta: dict[str, Any] = existing or {"rows": rows, "parts": []}
    done = len(meta["parts"]) * PART
    if done:
        log.info("%s: resuming after row %d of %d", directory, done, rows)
    with (directory / VECTORS).open("r+b" if existing else "wb") as file:
        file.truncate(0 if existing is None else done * meta["texts_per_row"] * meta["width"] * DTYPE.itemsize)
        file.seek(0, 2)
        with ProgressBar("teacher", "rows", rows, before=done, quiet=quiet) as progress:
            for part in _parts(itertools.islice(texts, done, None)):
                vectors = embed([text for row in part for text in row])
                with np.errstate(over="ignore"):
                    float16_vectors = vectors.astype(DTYPE)
                if not np.isfinite(float16_vectors).all():
                    raise InputError(
                        key="model.teacher",
                        expected="an encoder whose embeddings are finite and at most 65,504",
                    )
                content = float16_vectors.tobytes()
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # before the record of the part
                meta |= {"texts_per_row": len(part[0]), "width": vectors.shape[1]}
                meta["parts"].append(hashlib.sha256(content).hexdigest())
                done += len(part)
                if done > rows or (len(part) < PART and done < rows):
                    break
                write_record(directory / META, meta)
                progress.to(done)
    if done != rows:
        remove(directory)
        raise InputError(
            location=str(directory),
            expected=f"data with {rows} rows, as at the start of the command, but the data has changed",
            hint="Run the command again.",
        )
    return meta


def _parts(rows: Iterable[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    several = iter(rows)
    while part := list(itertools.islice(several, PART)):
        yield part
