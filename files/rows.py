"""Rows of named values out of text files, for every command: .txt, .jsonl, .json, .csv, .tsv, .parquet, each also .gz.

A row comes with its place. What is wrong with a file is a `BadRow` in its place, which the caller refuses or counts.
Nothing is guessed about values: "None" and "NA" are texts. Memory is a row, or a batch of Parquet's.
"""

import csv
import gzip
import io
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from contracts import InputError
from files.json_list import BrokenList, items_of
from files.listing import form_of
from files.nested import MISSING, top_level, value_in

LINE = "text"  # the name of what a line of a .txt file holds
STSB = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")  # columns of STS-B's files, without a header
LONGEST_QUOTE = 60  # characters of a bad line shown in a message
LONGEST_CELL = 1 << 24  # characters of a .csv: a quotation mark that nothing closes would swallow the file
ROWS_OF_PARQUET = 1_024  # in memory at a time
BLOCK = 1 << 18  # bytes read at a time
BOM = b"\xef\xbb\xbf"
EMPTY = "the file is empty. Remove it or write it again"
SPACE = b"(?:%s)" % b"|".join(re.escape(chr(one).encode()) for one in range(0x3001) if chr(one).isspace())
UNREADABLE = (EOFError, zlib.error, OSError)


class Row(NamedTuple):
    """One row as it stands in the file; no values where a line is blank. A line of a .txt file is its ``text``."""

    values: dict[str, Any]
    line: int  # 1-based line where it begins, or row of a Parquet file


class BadRow(NamedTuple):
    """A row that could not be read. What breaks off ends in one."""

    message: str
    line: int


Piece = tuple[int, Any]  # a line and what stands there, not decoded yet: passing over it costs little


class Form:
    """How one kind of file is read: ``pieces`` finds where rows begin, ``row`` makes one of a piece."""

    blank = re.compile(rb"(?!)")  # a line without values; a .txt has none

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        self.path, self.columns = path, columns

    def pieces(self) -> Iterator[Piece | BadRow]:
        return lines_of(self.path)

    def row(self, line: int, piece: Any) -> Row | BadRow:
        raise NotImplementedError


def read_rows(path: Path, columns: Sequence[str] = (), form: str = "") -> Iterator[Row | BadRow]:
    """Yield all rows of a file in order, blank lines too.

    Of Parquet only ``columns`` are read where it has them; all where it lacks the first, so that a message can say
    what is there. ``form`` is one of ``listing.FORMS``, where the name of the file does not say it.
    """
    reader = _open(path, columns, form)
    make = reader.row
    for piece in _pieces(reader):
        yield piece if isinstance(piece, BadRow) else make(*piece)


def read_windows(
    paths: Iterable[Path], column: str, size: int, wanted: Callable[[int], bool], advice: str = ""
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, its texts) of the wanted windows of ``size`` rows, as `count_rows` counts; pass over the others.

    Raises:
        InputError: a row of a wanted window has no text under ``column``, or a file breaks off. It ends in ``advice``.
    """
    pieces, number = _filled(paths, [column]), 0
    while window := list(islice(pieces, size)):
        if wanted(number):
            yield number, [_text(reader, piece, column, advice) for reader, piece in window]
        number += 1


def _text(reader: Form, piece: Piece, column: str, advice: str) -> str:
    row = reader.row(*piece)
    text = text_in(row, LINE if isinstance(reader, Lines) else column) if isinstance(row, Row) else row
    if isinstance(text, BadRow):
        raise InputError(f"{reader.path}:{text.line}: {text.message}.{advice}")
    return text


def count_rows(paths: Iterable[Path], columns: Sequence[str] = ()) -> int:
    """Count the lines of .txt files, and rows of others that are not blank, without decoding them.

    Raises:
        InputError: a file breaks off.
    """
    return sum(1 for _ in _filled(paths, columns))


def sound(row: Row | BadRow, path: Path) -> Row:
    """Return the row, or raise InputError with its place."""
    if isinstance(row, BadRow):
        raise InputError(f"{path}:{row.line}: {row.message}.")
    return row


def text_in(row: Row, name: str) -> str | BadRow:
    """Return the text under this name, or say why there is none that UTF-8 can hold."""
    text = value_in(row.values, name)
    if not isinstance(text, str):
        if text is MISSING:
            names = ", ".join(map(repr, row.values)) or "none"
            return BadRow(f"{name} is missing; the columns are {names}. Wanted a text", row.line)
        return BadRow(f"{name} is {'null' if text is None else repr(text)[:LONGEST_QUOTE]}. Wanted a text", row.line)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON may spell half of a surrogate pair
            half = f"\\u{ord(text[error.start]):04x}"
            return BadRow(f"{name} holds half a surrogate pair, {half}, which is no character", row.line)
    return text


def _open(path: Path, columns: Sequence[str] = (), form: str = "") -> Form:
    form = form or form_of(path)
    if form == ".json" and not _is_list(path):
        form = ".jsonl"
    return FORMS.get(form, Lines)(path, columns)


def _pieces(reader: Form) -> Iterator[Piece | BadRow]:
    if not reader.path.stat().st_size:
        return iter([BadRow(EMPTY, 1)])
    return reader.pieces()


def _filled(paths: Iterable[Path], columns: Sequence[str]) -> Iterator[tuple[Form, Piece]]:
    for path in paths:
        reader = _open(path, columns)
        for piece in _pieces(reader):
            if isinstance(piece, BadRow):
                sound(piece, path)
            elif not (reader.blank.fullmatch(piece[1]) if isinstance(piece[1], bytes) else piece[1] in ([], {})):
                yield reader, piece


# ------------------------------------------------------------------------------------------------------ lines and JSON


def lines_of(path: Path) -> Iterator[tuple[int, bytes] | BadRow]:
    """Yield number and bytes of each line, cut at \\n only: U+2028 and its like may stand inside a document."""
    number = 0
    try:
        with _opened(path) as stream:
            for number, line in enumerate(stream, start=1):
                yield number, (line.removeprefix(BOM) if number == 1 else line).rstrip(b"\r\n")
    except UNREADABLE as error:
        yield BadRow(_broken(error), number + 1)


def _opened(path: Path) -> IO[bytes]:
    if path.suffix.lower() != ".gz":
        return path.open("rb", BLOCK)
    return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), BLOCK)


def _broken(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip stream ends early: the file was cut short. Copy or download it again (check with `gzip -t`)"
    if isinstance(error, zlib.error | gzip.BadGzipFile):
        advice = "Copy it again, or drop the .gz from its name if it is not compressed"
        return f"not a sound gzip stream ({error}). {advice}"
    return f"cannot be read ({error}). Copy it again"


def decoded(line: bytes, number: int) -> str | BadRow:
    """Return the text of a line, or what is no UTF-8 in it."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        wrong = f"wanted UTF-8, got byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        codec = "UTF-16" if line.startswith((b"\xff\xfe", b"\xfe\xff")) else "ENCODING"
        return BadRow(f"{wrong}. Convert the file: iconv -f {codec} -t UTF-8", number)


class Lines(Form):
    """Reads .txt: a text per line."""

    def row(self, line: int, piece: bytes) -> Row | BadRow:
        text = decoded(piece, line)
        return text if isinstance(text, BadRow) else Row({LINE: text}, line)


class _Repeated(dict[str, Any]):
    """An object that names a value twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(pairs)


DECODER = json.JSONDecoder(object_pairs_hook=_object)


class JsonLines(Form):
    """Reads .jsonl: a JSON object per line. One without values is a blank row, as a blank line is."""

    blank = re.compile(rb"%(s)s*(?:\{%(s)s*\}%(s)s*)?" % {b"s": SPACE})

    def row(self, line: int, piece: bytes) -> Row | BadRow:
        if self.blank.fullmatch(piece):
            return Row({}, line)
        text = decoded(piece, line)
        if isinstance(text, BadRow):
            return text
        try:
            return _json_row(DECODER.decode(text), line)
        except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
            return BadRow(f"broken JSON ({error}) in {text[:LONGEST_QUOTE]!r}. Wanted one JSON object per line", line)


def _json_row(found: Any, line: int) -> Row | BadRow:
    if type(found) is dict:
        return Row(found, line)
    if isinstance(found, _Repeated):
        return BadRow("the JSON object names a value twice. Rename one of them", line)
    got = f"{type(found).__name__} {repr(found)[:LONGEST_QUOTE]}"
    return BadRow(f"wanted a JSON object with named values, got {got}", line)


class JsonList(Form):
    """Reads .json: a list of JSON objects. A .json file that holds one per line is read as .jsonl."""

    def pieces(self) -> Iterator[Piece | BadRow]:
        line = 1
        try:
            with _opened(self.path) as stream:
                for line, found in items_of(stream, DECODER):
                    yield line, found
        except BrokenList as error:
            yield BadRow(f"{error}. Wanted UTF-8, a list of JSON objects, [{{...}}, ...], or one per line", error.line)
        except UNREADABLE as error:
            yield BadRow(_broken(error), line)

    def row(self, line: int, piece: Any) -> Row | BadRow:
        return _json_row(piece, line)


def _is_list(path: Path) -> bool:
    """Whether a .json file holds a list, or one object over several lines, which is neither that nor one per line."""
    try:
        with _opened(path) as stream:
            begin = stream.read(BLOCK).removeprefix(BOM).lstrip()
    except UNREADABLE:
        return False  # who reads it says so
    return re.match(rb"\[|\{(?:[^\n]*(?:[{\[]|[^}\]],))?\s*\n", begin) is not None


# -------------------------------------------------------------------------------------------------------------- tables


class TabTable(Form):
    """Reads .tsv: the first line names the columns. Quotation marks are text, as the published sets hold lone ones."""

    header: Sequence[str] = ()
    blank = re.compile(rb"[^\S\t]*")

    def pieces(self) -> Iterator[Piece | BadRow]:
        return self.below_header(lines_of(self.path))

    def below_header(self, lines: Iterator[tuple[int, bytes] | BadRow]) -> Iterator[Piece | BadRow]:
        """Yield what follows the header, which STS-B's own files do not have."""
        for item in islice(lines, 1):
            text = item if isinstance(item, BadRow) else decoded(item[1], item[0])
            if isinstance(text, BadRow):
                yield text
                return
            self.header = STSB if is_stsb(text) else text.split("\t")
            if self.header is STSB:
                yield item
            elif (bad := _bad_header(self.header)) is not None:
                yield bad
                return
        yield from lines

    def row(self, line: int, piece: Any) -> Row | BadRow:
        text = decoded(piece, line)
        if isinstance(text, BadRow):
            return text
        cells = [] if self.blank.fullmatch(piece) else text.split("\t")
        return _cells(self.header, cells[: len(STSB)] if self.header is STSB else cells, line)


def is_stsb(first_line: str) -> bool:
    """Whether a file begins as STS-B's do: no header, the score in column 5, sentences in 6 and 7, perhaps more."""
    cells = first_line.split("\t")
    try:
        return len(cells) >= len(STSB) and 0 <= float(cells[STSB.index("score")]) <= 5
    except ValueError:
        return False


class CommaTable(TabTable):
    """Reads .csv as RFC 4180 has it: a quoted text may hold commas, doubled quotation marks and line breaks."""

    def pieces(self) -> Iterator[Piece | BadRow]:
        lines = lines_of(self.path)
        first = list(islice(lines, 1))
        if is_stsb("".join(item[1].decode(errors="replace") for item in first if not isinstance(item, BadRow))):
            return self.below_header(chain(first, lines))
        return self._records(chain(first, lines))

    def _records(self, lines: Iterator[tuple[int, bytes] | BadRow]) -> Iterator[Piece | BadRow]:
        number, unreadable = 0, list[BadRow]()  # the line last read, and what is wrong with those of this record

        def texts() -> Iterator[str]:
            nonlocal number
            for item in lines:
                number = item.line if isinstance(item, BadRow) else item[0]
                text = item if isinstance(item, BadRow) else decoded(item[1], number)
                if isinstance(text, BadRow):
                    unreadable.append(text)
                yield "\n" if isinstance(text, BadRow) else text + "\n"

        rows, cells = csv.reader(texts(), strict=True), list[str]()
        while True:
            line, before = number + 1, csv.field_size_limit(LONGEST_CELL)
            try:
                cells = next(rows)
                bad = None if self.header else _bad_header(cells)
            except StopIteration:
                return
            except csv.Error as error:
                bad = BadRow(
                    f"broken CSV ({error}) in the record that begins here. Wanted texts with a comma, a quotation mark "
                    'or a line break in "...", with quotation marks inside doubled',
                    line,
                )
            finally:
                csv.field_size_limit(before)  # it is the whole process's
            if unreadable or bad:
                yield unreadable[0] if unreadable else cast(BadRow, bad)
                if not self.header:
                    return
                unreadable.clear()
            elif self.header:
                yield line, cells
            else:
                self.header = cells

    def row(self, line: int, piece: Any) -> Row | BadRow:
        return _cells(self.header, piece, line) if isinstance(piece, list) else super().row(line, piece)


def _bad_header(header: Sequence[str]) -> BadRow | None:
    if len(header) == 1 and "\t" in header[0]:
        return BadRow("there are tabs between the columns, not commas. Rename the file to .tsv", 1)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        return BadRow(f"the header names {', '.join(map(repr, twice))} twice. Rename one of the columns", 1)
    return None


def _cells(header: Sequence[str], cells: Sequence[str], line: int) -> Row | BadRow:
    if not cells:
        return Row({}, line)
    if len(cells) != len(header):
        return BadRow(
            f"wanted {len(header)} columns as in the header, got {len(cells)}. A text that holds the separator is "
            "quoted in a .csv; a .tsv cannot hold it. Or write the file as .jsonl",
            line,
        )
    return Row(dict(zip(header, cells, strict=True)), line)


# ------------------------------------------------------------------------------------------------------------- Parquet


class Parquet(Form):
    """Reads .parquet by columns, a batch of rows at a time, and decodes the batches that are asked for."""

    def pieces(self) -> Iterator[Piece | BadRow]:
        import pyarrow
        import pyarrow.parquet

        line = 0
        try:
            with _seekable(self.path) as stream, pyarrow.parquet.ParquetFile(stream) as file:
                there = file.schema_arrow.names
                columns = top_level(self.columns, there) or there
                for batch in file.iter_batches(ROWS_OF_PARQUET, columns=columns):
                    rows = _Batch(batch, columns)
                    for place in range(len(batch)):
                        line += 1
                        yield line, (rows, place)
        except (pyarrow.ArrowException, *UNREADABLE, UnicodeDecodeError) as error:
            yield BadRow(f"not a sound parquet file ({error}). Copy or write it again", line + 1)

    def row(self, line: int, piece: Any) -> Row | BadRow:
        rows, place = piece
        values: dict[str, Any] = rows.values(place)
        return Row(values, line)


class _Batch:
    """Rows that are decoded when the first of them is asked for."""

    def __init__(self, batch: Any, names: Sequence[str]) -> None:
        self.batch, self.names = batch, names
        self.columns: list[list[Any]] = []

    def values(self, place: int) -> dict[str, Any]:
        if not self.columns:
            self.columns = [column.to_pylist() for column in self.batch.columns]
        return {name: column[place] for name, column in zip(self.names, self.columns, strict=True)}


def _seekable(path: Path) -> IO[bytes]:
    """Parquet is read from its end: what is packed is unpacked into a file without a name."""
    if path.suffix.lower() != ".gz":
        return path.open("rb")
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    with gzip.open(path) as packed:
        shutil.copyfileobj(packed, unpacked, BLOCK)
    unpacked.seek(0)
    return cast(IO[bytes], unpacked)


FORMS: dict[str, type[Form]] = {
    ".txt": Lines,
    ".jsonl": JsonLines,
    ".json": JsonList,
    ".csv": CommaTable,
    ".tsv": TabTable,
    ".parquet": Parquet,
}
