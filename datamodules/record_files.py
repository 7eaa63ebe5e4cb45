"""Rows of named values out of .jsonl, .csv, .tsv, .parquet and .txt files, where all but Parquet may be gzipped.

Nothing is guessed about values: "None" and "NA" are texts. What is wrong with a file is said with its line.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.text_files import LONGEST_QUOTE, BadRow, decoded, lines_of, suffix_of

SUFFIXES = (
    ".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".txt", ".txt.gz"
)  # fmt: skip
ROWS_OF_PARQUET = 4_096  # read at a time


class Fields(NamedTuple):
    """One row of a file as it stands there; no value where the line is blank."""

    values: dict[str, Any]
    line: int  # 1-based line where it begins, or row of a Parquet file


def read_fields(path: Path) -> Iterator[Fields | BadRow]:
    """All rows of a file, in order. A file that breaks off, or has no header, ends in a BadRow."""
    suffix = suffix_of(path, SUFFIXES).removesuffix(".gz")
    if path.stat().st_size == 0:
        yield BadRow("the file is empty. Remove it or write it again", 1)
    else:
        yield from READERS[suffix](path)


def _decoded_lines(path: Path) -> Iterator[tuple[int, str | BadRow]]:
    """The number of each line, and its text or why there is none."""
    for item in lines_of(path):
        yield (item.line, item) if isinstance(item, BadRow) else (item[0], decoded(item[1], item[0]))


def _json_fields(path: Path) -> Iterator[Fields | BadRow]:
    for line, text in _decoded_lines(path):
        if isinstance(text, BadRow):
            yield text
        elif not text.strip():
            yield Fields({}, line)
        else:
            yield _json_object(text, line)


def _json_object(text: str, line: int) -> Fields | BadRow:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        return BadRow(f"broken JSON ({error}) in {text[:LONGEST_QUOTE]!r}. Wanted one JSON object per line", line)
    if not isinstance(record, dict):
        return BadRow(f"wanted a JSON object, got {type(record).__name__} {text[:LONGEST_QUOTE]!r}", line)
    return Fields(record, line)


def _text_fields(path: Path) -> Iterator[Fields | BadRow]:
    for line, text in _decoded_lines(path):
        yield text if isinstance(text, BadRow) else Fields({"text": text} if text.strip() else {}, line)


def _tsv_fields(path: Path) -> Iterator[Fields | BadRow]:
    """Quotation marks are text: the published sets hold lone ones, where a CSV reader would swallow lines."""
    header: list[str] | None = None
    for line, text in _decoded_lines(path):
        if isinstance(text, BadRow):
            yield text
        elif header is None:
            header = text.split("\t")
            if (bad := _bad_header(header, line)) is not None:
                yield bad
                return
        else:
            yield _cells(header, text.split("\t") if text else [], line)


class _DecodedLines:
    """Lines for the csv module, which goes on behind one that could not be read."""

    def __init__(self, path: Path) -> None:
        self.lines = _decoded_lines(path)
        self.number = 0  # of the line last read; csv's own count leaves out those that could not be

    def __iter__(self) -> "_DecodedLines":
        return self

    def __next__(self) -> str:
        self.number, text = next(self.lines)
        if isinstance(text, BadRow):
            raise _UnreadableLine(text)
        return text + "\n"


class _UnreadableLine(Exception):
    def __init__(self, bad: BadRow) -> None:
        super().__init__(bad.message)
        self.bad = bad


def _csv_fields(path: Path) -> Iterator[Fields | BadRow]:
    """As RFC 4180 has it: a quoted text may hold commas, doubled quotation marks and line breaks."""
    lines = _DecodedLines(path)
    rows = csv.reader(lines, strict=True)
    header: list[str] | None = None
    while True:
        line = lines.number + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except _UnreadableLine as error:
            yield error.bad
            continue
        except csv.Error as error:
            yield BadRow(
                f"broken CSV ({error}) in the record that begins here. Wanted texts with a comma, a quotation mark "
                'or a line break in "...", with quotation marks inside doubled',
                line,
            )
            continue
        if header is None:
            header = cells
            if (bad := _bad_header(header, line)) is not None:
                yield bad
                return
        else:
            yield _cells(header, cells, line)


def _bad_header(header: Sequence[str], line: int) -> BadRow | None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        return BadRow(f"the header names {', '.join(map(repr, twice))} twice. Rename one of the columns", line)
    return None


def _cells(header: Sequence[str], cells: Sequence[str], line: int) -> Fields | BadRow:
    if not cells:
        return Fields({}, line)
    if len(cells) != len(header):
        return BadRow(
            f"wanted {len(header)} columns as in the header, got {len(cells)}. Quote texts that hold the separator, "
            "or write the file as .jsonl",
            line,
        )
    return Fields(dict(zip(header, cells, strict=True)), line)


def _parquet_fields(path: Path) -> Iterator[Fields | BadRow]:
    import pyarrow
    import pyarrow.parquet

    line = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_OF_PARQUET):
                for values in batch.to_pylist():
                    line += 1
                    yield Fields(values, line)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        yield BadRow(f"not a sound parquet file ({error}). Copy or write it again", line + 1)


READERS: dict[str, Callable[[Path], Iterator[Fields | BadRow]]] = {
    ".jsonl": _json_fields,
    ".csv": _csv_fields,
    ".tsv": _tsv_fields,
    ".parquet": _parquet_fields,
    ".txt": _text_fields,
}
