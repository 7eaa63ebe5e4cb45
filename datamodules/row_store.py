"""Rows of texts are tokenised once, into flat memory-mapped ids, offsets and labels.

Built for tens of millions of rows: neither writing nor opening holds anything per row in memory.
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
from tokenizers import Tokenizer

from contracts import InputError
from datamodules.records import Record
from datamodules.text_to_ids import BATCH_CHARACTERS, tokenising_bar
from datamodules.token_store import tokenizer_sha256
from files.whole import build_once

STORE_VERSION = 1  # part of the key: raise it when the same input would be stored otherwise
OFFSET = np.dtype("<i8")
LABEL = np.dtype("<f4")

log = logging.getLogger(__name__)


class RowStore:
    """Tokenised rows on disk, R rows of C texts, without special tokens.

    A directory of ``ids.bin`` (flat, row by row), ``offsets.bin``, ``labels.bin`` and ``meta.json``. InputError if it
    is not whole.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        try:
            self.manifest: dict[str, Any] = json.loads((self.directory / "meta.json").read_text())
            rows, self.width = int(self.manifest["kept"]), int(self.manifest["texts_per_row"])
            self.ids = _mapped(self.directory / "ids.bin", np.dtype(self.manifest["dtype"]), self.manifest["tokens"])
            self.offsets = _mapped(self.directory / "offsets.bin", OFFSET, rows * self.width + 1)  # of all texts
            labelled = self.manifest["labelled"]
            self.labels = _mapped(self.directory / "labels.bin", LABEL, rows) if labelled else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{directory}: not a whole store of rows ({error}). Delete it; it is built anew."
            ) from error
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def bounds(self, rows: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
        """(k,) rows -> (k,) first and (k,) one past the last place in ``ids`` of their text in this column."""
        places = rows * self.width + column
        return self.offsets[places], self.offsets[places + 1]

    def text(self, row: int, column: int) -> np.ndarray:
        """(tokens,) ids: a slice of the map."""
        if not (0 <= row < self.rows and 0 <= column < self.width):
            raise IndexError(f"text {column} of row {row}; there are {self.rows} rows of {self.width} texts")
        place = row * self.width + column
        return self.ids[self.offsets[place] : self.offsets[place + 1]]


def _mapped(path: Path, dtype: np.dtype, length: int) -> np.ndarray:
    """A plain array over the map: slices of it cost less than those of np.memmap."""
    if path.stat().st_size != length * dtype.itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, wanted {length * dtype.itemsize}")
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(length,)))


class RowWriter:
    """Appends rows to the files of a store; a context manager, whose ``totals`` go into meta.json."""

    def __init__(self, folder: Path, texts_per_row: int, dtype: np.dtype, labelled: bool) -> None:
        self.texts_per_row, self.dtype, self.labelled = texts_per_row, np.dtype(dtype), labelled
        names = ["ids.bin", "offsets.bin", *(["labels.bin"] if labelled else [])]
        self._files = [(folder / name).open("wb") for name in names]
        self._hashes = [hashlib.sha256() for _ in names]
        self.kept = self.tokens = 0
        self._put(1, np.zeros(1, OFFSET))

    def write(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray | None = None) -> None:
        """(tokens,) ids of whole rows, (rows * texts_per_row,) lengths, and (rows,) labels where there are any."""
        rows, rest = divmod(len(lengths), self.texts_per_row)
        if (
            rest
            or int(lengths.sum()) != len(ids)
            or (len(labels) if labels is not None else None) != (rows if self.labelled else None)
        ):
            raise ValueError("ids, lengths and labels are not of the same whole rows")
        self._put(0, ids.astype(self.dtype, copy=False))
        self._put(1, (self.tokens + np.cumsum(lengths)).astype(OFFSET))
        if labels is not None:
            self._put(2, labels.astype(LABEL))
        self.kept += rows
        self.tokens += len(ids)

    def _put(self, file: int, values: np.ndarray) -> None:
        data = values.tobytes()
        self._files[file].write(data)
        self._hashes[file].update(data)

    def totals(self) -> dict[str, Any]:
        """What `RowStore` needs to know, and a sha256 of the content."""
        together = hashlib.sha256(b"".join(one.digest() for one in self._hashes))
        return {
            "kept": self.kept,
            "texts_per_row": self.texts_per_row,
            "tokens": self.tokens,
            "dtype": self.dtype.str,
            "labelled": self.labelled,
            "rows_sha256": together.hexdigest(),
        }

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


class RowSource(Protocol):
    """What the store asks of where rows come from."""

    width: int  # texts per row

    def __iter__(self) -> Iterator[Record]: ...

    def fingerprint(self) -> dict[str, Any]:
        """What names the content without reading it; JSON types only."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Provenance, and counts of the last reading."""
        ...


def build_or_open_rows(
    source: RowSource, tokenizer: Any, cache_dir: str | Path, *, labelled: bool, quiet: bool = False
) -> RowStore:
    """The store of this source under this tokenizer, built if it is not there."""
    key = {"version": STORE_VERSION, "source": source.fingerprint(), "tokenizer": tokenizer_sha256(tokenizer)}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    directory = Path(cache_dir).expanduser() / f"rows-{digest}"

    def build(folder: Path) -> None:
        dtype = np.dtype("<u2") if len(tokenizer) <= 2**16 else np.dtype("<u4")
        with RowWriter(folder, source.width, dtype, labelled) as writer:
            without_tokens = _write_records(source, TextToIds(tokenizer), writer, quiet)
        found = source.manifest()
        if not writer.kept:
            raise InputError(
                f"data: none of the {found.get('rows', 0)} rows has a token in each of its texts. Is the backbone's "
                "vocabulary made for another script? Take another backbone."
            )
        log.info("kept %d rows, %d tokens%s", writer.kept, writer.tokens, left_out(found, without_tokens))
        meta = {"source": found, "without_tokens": without_tokens, **writer.totals(), "key": key}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    build_once(directory, _is_whole, build)
    return RowStore(directory)


class TextToIds:
    """Text as it is to plain ids, in parallel: those that ``tokenizer(text)`` has between its special tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # whose truncation is not the user's
        self.backend.no_truncation()
        self.backend.no_padding()

    def __call__(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """(tokens,) int64 ids of all texts, one behind the other, and (texts,) int64 lengths."""
        lists = [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        return np.fromiter(itertools.chain.from_iterable(lists), np.int64, int(lengths.sum())), lengths


class _Batch(NamedTuple):
    texts: list[str]
    labels: list[float]


def _write_records(records: Iterable[Record], text_to_ids: TextToIds, writer: RowWriter, quiet: bool) -> int:
    """How many rows were left out because a text of theirs has no token."""
    without_tokens = 0
    with tokenising_bar(quiet) as bar:
        task = bar.add_task("tokenising", total=None, rate="")
        for batch in _batches(records):
            ids, lengths = text_to_ids(batch.texts)
            whole = (lengths.reshape(-1, writer.texts_per_row) > 0).all(axis=1)
            if not whole.all():
                without_tokens += int((~whole).sum())
                kept = np.repeat(whole, writer.texts_per_row)
                ids, lengths = ids[np.repeat(kept, lengths)], lengths[kept]
            labels = np.array(batch.labels, np.float64)[whole] if writer.labelled else None
            writer.write(ids, lengths, labels)
            rate = writer.kept / max(bar.tasks[0].elapsed or 0, 1e-3)
            bar.update(task, rate=f"{writer.kept:,} rows, {writer.tokens:,} tokens, {rate:,.0f} rows/s")
    return without_tokens


def _batches(records: Iterable[Record]) -> Iterator[_Batch]:
    batch, characters = _Batch([], []), 0
    for record in records:
        batch.texts.extend(record.texts)
        if record.label is not None:
            batch.labels.append(record.label)
        characters += sum(map(len, record.texts))
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = _Batch([], []), 0
    if batch.texts:
        yield batch


def left_out(manifest: dict[str, Any], without_tokens: int = 0) -> str:
    """For the log: what of a source is not used, and why."""
    counts = {
        **manifest.get("left_out", {}),
        "unreadable": manifest.get("skipped", 0),
        "without a token": without_tokens,
        **{f"with split={name!r}": number for name, number in manifest.get("other_splits", {}).items()},
    }
    found = [f"{number} {reason}" for reason, number in counts.items() if number]
    return f"; left out {', '.join(found)}" if found else ""


def _is_whole(directory: Path) -> bool:
    if not directory.exists():
        return False
    try:
        RowStore(directory)
    except InputError as error:
        log.warning("%s", error)
        return False
    return True
