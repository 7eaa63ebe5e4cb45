"""The texts of a file in its order and in constant memory: lines, a field of JSON lines, a column of Parquet."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pyarrow
import pyarrow.parquet

from contracts import InputError

LINES, JSON_LINES, PARQUET = (".txt", ".txt.gz"), (".jsonl", ".jsonl.gz"), (".parquet",)
AT_A_TIME = 1 << 20
COLUMN = "text"


class TextFile(NamedTuple):
    """Row i is line i of a text file, blank ones too; the i-th line of JSON lines that is not blank; a Parquet row."""

    path: Path
    column: str | None  # None: lines

    def rows(self) -> int:
        """Counted without decoding anything.

        Raises:
            InputError: the file cannot be unpacked, or has no such column.
        """
        if self.path.name.endswith(PARQUET):
            return self._parquet().metadata.num_rows
        with _unpacked(self.path) as file:
            if self.column is not None:
                return sum(1 for line in file if line.strip())
            count, last = 0, b"\n"
            while block := file.read(AT_A_TIME):
                count, last = count + block.count(b"\n"), block[-1:]
            return count + (last != b"\n")

    def windows(self, size: int, wanted: Callable[[int], bool]) -> Iterator[tuple[int, list[str]]]:
        """(number, its texts) of the windows of ``size`` rows that are wanted; the others are passed over.

        Raises:
            InputError: a row is no text; it says which.
        """
        rows, number = self._rows(), 0
        while block := list(islice(rows, size)):
            if wanted(number):
                yield number, [self._text(place, raw) for place, raw in block]
            number += 1

    def _rows(self) -> Iterator[tuple[int, Any]]:
        """(line or row number for messages, what is there): a row that is passed over costs no decoding."""
        if self.path.name.endswith(PARQUET):
            batches = self._parquet().iter_batches(batch_size=8192, columns=[self.column])
            yield from enumerate(value for batch in batches for value in batch.column(0))
            return
        with _unpacked(self.path) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if self.column is None or line.strip():
                    yield number, line

    def _text(self, number: int, raw: Any) -> str:
        if self.path.name.endswith(PARQUET):
            return self._value(number, raw)
        return self._line(number, raw) if self.column is None else self._field(number, raw)

    def _line(self, number: int, line: bytes) -> str:
        try:
            return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}:{number}: wanted UTF-8, got {error}. Convert the file.") from None

    def _field(self, number: int, line: bytes) -> str:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{self.path}:{number}: wanted a JSON object, got {error}. Correct the line.") from None
        if not isinstance(row, dict) or not isinstance(row.get(self.column), str):
            got = f"the fields {', '.join(map(str, row))}" if isinstance(row, dict) else type(row).__name__
            if isinstance(row, dict) and self.column in row:
                got = f"{type(row[self.column]).__name__} in it"
            raise InputError(
                f"{self.path}:{number}: wanted an object with a text under {self.column!r}, got {got}. "
                "Say column=NAME, or correct the line."
            )
        return cast(str, row[self.column])

    def _parquet(self) -> pyarrow.parquet.ParquetFile:
        try:
            file = pyarrow.parquet.ParquetFile(self.path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise InputError(f"input={self.path}: cannot be read as Parquet: {error}. Fetch it again.") from error
        names = file.schema_arrow.names
        kind = file.schema_arrow.field(self.column).type if self.column in names else None
        if kind is None or not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
            got = f"it is {kind}" if kind is not None else f"got {', '.join(names)}"
            raise InputError(f"input={self.path}: wanted a column {self.column!r} of texts, {got}. Say column=NAME.")
        return file

    def _value(self, number: int, value: Any) -> str:
        if not value.is_valid:
            raise InputError(
                f"{self.path}: row {number} (from 0) of column {self.column!r} is null; wanted a text. Drop such rows."
            )
        return cast(str, value.as_py())


def text_file(path: Path, column: str | None) -> TextFile:
    """Raises InputError where it is no such file."""
    name = path.name.lower()
    if not name.endswith((*LINES, *JSON_LINES, *PARQUET)):
        raise InputError(f"input={path}: wanted a name that ends in {', '.join((*LINES, *JSON_LINES, *PARQUET))}.")
    if not path.is_file():
        raise InputError(f"input={path}: no such file.")
    if name.endswith(LINES):
        if column is not None:
            raise InputError(f"column={column}: a text file has lines and no columns; leave column out.")
        return TextFile(path, None)
    return TextFile(path, column or COLUMN)


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    """A file, or what is packed in it; damage is an InputError wherever it shows."""
    try:
        with cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"input={path}: cannot be unpacked: {error}. Fetch it again.") from error
