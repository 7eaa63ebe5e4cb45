"""The token store: memory-mapped token ids and offsets, in a folder named by a hash of everything that they depend on.

It is designed for tens of millions of rows: an open store keeps nothing per row in memory, and writing needs eight
bytes per row, or sixteen with labels.
"""

import hashlib
import itertools
import json
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.progress import ProgressBar
from contrastive_encoders.core.runtime.worker_pool import WorkerCrashError, in_order, open_pool
from contrastive_encoders.core.runtime.worker_tasks import TaskFailedError, WorkItem
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.store.row_statistics import Repeats, TextLengths
from contrastive_encoders.datamodules.store.tokenization import RowTokenizer, tokenize_rows
from contrastive_encoders.io.atomic import build_once
from contrastive_encoders.io.manifest import read_record, sha256_of, write_record

STORE_VERSION = 7  # part of the key: increase it when the same input would be stored differently
BATCH_CHARACTERS = 4_000_000  # characters that all workers tokenize at a time; needs a few hundred MB at most
WINDOW = 4  # batches per worker that may be in progress, counted from the first unwritten one
OFFSET = np.dtype("<i8")
LABEL = np.dtype("<f4")
META, LENGTHS = "meta.json", "text_lengths"

log = logging.getLogger(__name__)


class TokenStore:
    """Tokenized rows on disk: R rows with C texts each, without special tokens. A document is a row of one text.

    The store is a directory with ``ids.bin`` (flat, row by row), ``offsets.bin``, ``labels.bin`` if rows have labels,
    and ``meta.json``. Opening it compares the file sizes with ``meta.json``. ``verify`` also reads the files and
    compares their SHA-256.

    Raises:
        InputError: The store is incomplete or damaged.
    """

    def __init__(self, directory: str | Path, *, verify: bool = False) -> None:
        self.directory = Path(directory)
        try:
            self.manifest: dict[str, Any] = read_record(self.directory / META)
            self.rows, self.width = int(self.manifest["kept"]), int(self.manifest["texts_per_row"])
            dtype = np.dtype(self.manifest["dtype"])
            self.ids = _memory_map(self.directory / "ids.bin", dtype, self.manifest["tokens"])
            self.offsets = _memory_map(
                self.directory / "offsets.bin", OFFSET, self.rows * self.width + 1
            )  # of all texts
            self.labels = self._labels(int(self.manifest["labelled"]))
            self.lengths = TextLengths.from_json(self.manifest[LENGTHS])
            if verify:
                self._verify()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(location=str(directory), expected=f"a complete token store ({error})") from error

    def __len__(self) -> int:
        return self.rows

    def _labels(self, each: int) -> np.ndarray | None:
        """Return the labels, (rows,) float32, or (rows, each) if a row has several labels.

        Return None if rows have no labels.
        """
        if not each:
            return None
        flat = _memory_map(self.directory / "labels.bin", LABEL, self.rows * each)
        return flat if each == 1 else flat.reshape(-1, each)

    @property
    def account(self) -> dict[str, Any]:
        """Return the manifest entries that are copied to a run's ``results.json``: all entries except the text
        lengths and the key of the store.
        """
        return {name: entry for name, entry in self.manifest.items() if name not in (LENGTHS, "key")}

    def bounds(self, rows: np.ndarray, column: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions in ``ids`` at which texts begin and end.

        Args:
            rows: (k,) row numbers.
            column: One column for all rows, or (k,) columns.

        Returns:
            The (k,) positions of the first tokens and the (k,) positions after the last tokens.

        Raises:
            InputError: The offsets are damaged.
        """
        places = rows * self.width + column
        begins, ends = self.offsets[places], self.offsets[places + 1]
        self._check_offsets(begins, ends)
        return begins, ends

    def text(self, row: int, column: int = 0) -> np.ndarray:
        """Return the token ids of a text, (tokens,) uint16 or uint32, as a read-only slice of the memory map."""
        place = row * self.width + column
        begin, end = self.offsets[place], self.offsets[place + 1]
        if not 0 <= begin <= end <= len(self.ids):
            raise self._damaged()
        return self.ids[begin:end]

    def token_counts(self) -> np.ndarray:
        """Return the number of tokens of each text, (R * C,) int64."""
        self._check_offsets(self.offsets[:-1], self.offsets[1:])
        return np.diff(self.offsets)

    def _check_offsets(self, begins: np.ndarray, ends: np.ndarray) -> None:
        if not np.all((begins >= 0) & (begins <= ends) & (ends <= len(self.ids))):
            raise self._damaged()

    def _damaged(self) -> InputError:
        return InputError(
            location=str(self.directory),
            expected="a token store with valid offsets, but the file is damaged",
            hint="Set verify=true to build it again.",
        )

    def _verify(self) -> None:
        """Compare the content of the files with their checksums.

        Raises:
            ValueError: The content of a file has changed since it was written.
        """
        names = _files_of(self.manifest["labelled"])
        digests = b"".join(bytes.fromhex(sha256_of(self.directory / name)) for name in names)
        if hashlib.sha256(digests).hexdigest() != self.manifest["rows_sha256"]:
            raise ValueError("the files have changed since they were written")


def _files_of(labeled: int) -> list[str]:
    return ["ids.bin", "offsets.bin", *(["labels.bin"] if labeled else [])]


def _memory_map(path: Path, dtype: np.dtype, length: int) -> np.ndarray:
    """Return a memory map as a plain array, because slicing it is cheaper than slicing ``np.memmap``."""
    if path.stat().st_size != length * dtype.itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {length * dtype.itemsize}")
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(length,)))


class StoreWriter:
    """Context manager that appends rows to the files of a store. Its ``totals`` are written to ``meta.json``."""

    def __init__(self, folder: Path, texts_per_row: int, dtype: np.dtype, labeled: int) -> None:
        self.texts_per_row, self.dtype, self.labeled = texts_per_row, np.dtype(dtype), labeled
        names = _files_of(labeled)
        self._files = [(folder / name).open("wb") for name in names]
        self._hashes = [hashlib.sha256() for _ in names]
        self._lengths = TextLengths(texts_per_row)
        self.kept = self.tokens = 0
        self._put(1, np.zeros(1, OFFSET))

    def write(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray | None = None) -> None:
        """Append complete rows to the store.

        Args:
            ids: (tokens,) ids of the rows.
            lengths: (rows * texts_per_row,) token counts of the texts.
            labels: (rows,) or (rows, each), if the rows have labels.
        """
        self._put(0, ids.astype(self.dtype, copy=False))
        self._put(1, (self.tokens + np.cumsum(lengths)).astype(OFFSET))
        self._lengths.add(lengths)
        if labels is not None:
            self._put(2, labels.astype(LABEL))
        self.kept += len(lengths) // self.texts_per_row
        self.tokens += len(ids)

    def _put(self, file: int, values: np.ndarray) -> None:
        data = values.tobytes()
        self._files[file].write(data)
        self._hashes[file].update(data)

    def totals(self) -> dict[str, Any]:
        """Return the entries of ``meta.json`` that `TokenStore` needs to open the files (row and token counts, dtype,
        text lengths), and the checksums of the files.
        """
        together = hashlib.sha256(b"".join(one.digest() for one in self._hashes))
        return {
            "kept": self.kept,
            "texts_per_row": self.texts_per_row,
            "tokens": self.tokens,
            "dtype": self.dtype.str,
            "labelled": self.labeled,
            "ids_sha256": self._hashes[0].hexdigest(),
            "rows_sha256": together.hexdigest(),
            LENGTHS: self._lengths.to_json(),
        }

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


class RowSource(Protocol):
    """Iterable of the rows to tokenize. It can be identified without reading it."""

    width: int  # texts per row

    def __iter__(self) -> Iterator[Record]: ...

    def fingerprint(self) -> dict[str, Any]:
        """Return values that identify the content of the rows, such as paths, sizes, and times. Contains JSON types
        only.
        """
        ...

    def manifest(self) -> dict[str, Any]:
        """Return the provenance of the rows, and the counts of the last iteration over them."""
        ...


def build_or_open(
    source: RowSource,
    tokenization: RowTokenizer,
    cache: Path,
    *,
    quiet: bool = False,
    verify: bool = False,
    workers: int = 1,
) -> TokenStore:
    """Open the token store for a source and a tokenization, and build the store if it does not exist.

    If it is missing or incomplete, ``workers`` processes build it first. ``verify`` also compares the files with their
    checksums.

    Raises:
        InputError: The source has bad rows, no row is kept, or the cache is read-only.
        OutputError: The disk is full, or workers fail repeatedly.
    """
    key = {"version": STORE_VERSION, "source": source.fingerprint(), **tokenization.fingerprint()}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    directory = cache / f"tokens-{digest}"

    def build(folder: Path) -> None:
        with StoreWriter(folder, source.width, tokenization.dtype, tokenization.labeled) as writer:
            try:
                repeats = _write_rows(source, tokenization, writer, quiet, workers)
            except (TaskFailedError, WorkerCrashError) as error:
                raise OutputError(
                    f"{directory}: tokenizer processes were terminated repeatedly, usually because memory ran out. "
                    f"Run the command again with data.tokenizer_workers less than {workers}."
                ) from error
        found = source.manifest()
        if not writer.kept:
            raise tokenization.nothing_kept(found)
        log.info("%s", tokenization.summary(writer.kept, writer.tokens, found))
        meta = {"source": found, **tokenization.account(), **writer.totals(), **repeats, "key": key}
        write_record(folder / META, meta)

    opened: list[TokenStore] = []

    def is_complete(there: Path) -> bool:
        opened.extend(_open_existing(there, verify))
        return bool(opened)

    build_once(directory, is_complete, build)
    return opened[0] if opened else TokenStore(directory)


def _write_rows(
    records: Iterable[Record], tokenization: RowTokenizer, writer: StoreWriter, quiet: bool, workers: int
) -> dict[str, int]:
    """Tokenize and write all rows. Return how many of the kept rows repeat an earlier row, as `Repeats.count` does.

    Rows that a source derives from other texts are not counted, since users cannot remove them from a file. Needs
    memory for some batches, and eight or sixteen bytes per row.
    """
    repeats, read = Repeats(), deque[list[Record]]()

    def tasks() -> Iterator[WorkItem]:
        for number, batch in enumerate(group_by_size(records, BATCH_CHARACTERS // workers)):
            read.append(batch)
            yield WorkItem(number, [record.texts for record in batch])

    start = partial(_prepare_worker, tokenization, workers)
    with ProgressBar("tokenizing", tokenization.unit, quiet=quiet) as progress, open_pool(start, workers) as pool:
        for kept in in_order(pool.run(tokenize_rows, tasks(), window=WINDOW * workers)):
            batch = read.popleft()
            labels = np.array([record.label for record in batch], np.float64) if tokenization.labeled else None
            labels = None if labels is None else labels[kept.is_kept]
            writer.write(kept.ids, kept.lengths, labels)
            tokenization.add(batch, kept)
            repeats.add(one for one in itertools.compress(batch, kept.is_kept) if not one.made_as)
            progress.to(writer.kept, f"{writer.tokens:,} tokens")
    return repeats.count()


def _prepare_worker(tokenization: RowTokenizer, workers: int) -> RowTokenizer:
    """Set the number of threads that the tokenizer uses in a worker process. A single worker uses all threads of the
    tokenizer; each of several workers uses one thread.
    """
    if workers > 1:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return tokenization


def group_by_size(records: Iterable[Record], least: int) -> Iterator[list[Record]]:
    """Yield batches of consecutive rows, each with at least ``least`` characters in total. The last batch may have
    fewer.
    """
    batch, characters = list[Record](), 0
    for record in records:
        batch.append(record)
        characters += sum(map(len, record.texts))
        if characters >= least:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _open_existing(directory: Path, verify: bool) -> list[TokenStore]:
    """Return a list with the existing store, or an empty list if the store is missing or incomplete."""
    if not directory.exists():
        return []
    try:
        return [TokenStore(directory, verify=verify)]
    except InputError as error:
        log.warning("%s The token store is built again.", error)
        return []
