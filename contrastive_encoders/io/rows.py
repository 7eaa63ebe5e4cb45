"""Read files as rows of named values. The extension of a file determines its format.

The formats are .txt, .jsonl, .json, .csv, .tsv, and .parquet, each also with .gz, .xlsx, and documents, each of which
is a row.

Each row has its location in the file. An error in a file is a `BadRow` at its location, which the caller rejects or
counts. Values are never interpreted: "None" and "NA" are texts. The memory use is that of one row, or of one batch of a
Parquet file.
"""

import gzip
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import IO, Any, cast

from contrastive_encoders.io.delimited import CommaTable, TabTable
from contrastive_encoders.io.documents import DocumentReader
from contrastive_encoders.io.file_formats import DOCUMENTS, SHEET, form_of
from contrastive_encoders.io.html_cells import visible_text
from contrastive_encoders.io.json_list import InvalidJSONListError, items_of
from contrastive_encoders.io.nested_columns import MISSING, top_level, value_in
from contrastive_encoders.io.sheets import Sheet
from contrastive_encoders.io.text_files import (
    AUTO,
    BLOCK,
    EMPTY,
    LINE,
    UNREADABLE,
    BadRow,
    Encoding,
    Form,
    Lines,
    ParsedRow,
    Piece,
    bad_row_error,
    decode_utf8,
    describe_read_error,
    open_decompressed,
    open_text,
    require_valid_row,
)

DOCUMENT = "document"  # form of a file that is one text, regardless of its name
MAX_QUOTE_CHARS = 60  # characters of a bad line shown in a message
PARQUET_BATCH_ROWS = 1_024  # in memory at a time
SPACE = b"(?:%s)" % b"|".join(re.escape(chr(one).encode()) for one in range(0x3001) if chr(one).isspace())


def read_rows(
    path: Path, columns: Sequence[str] = (), form: str = "", encoding: Encoding = AUTO
) -> Iterator[ParsedRow | BadRow]:
    """Yield all rows of a file in order, including blank lines.

    Args:
        columns: the columns to read of a Parquet file that has them. If it lacks the first one, all columns are read,
            so that a message can list them.
        form: one of `FORMS`, if the file name does not determine it.
    """
    reader = _open(path, columns, form, encoding)
    make = reader.row
    for piece in _pieces(reader):
        yield piece if isinstance(piece, BadRow) else make(*piece)


def header_advice(path: Path, encoding: Encoding, otherwise: str) -> str:
    """Return advice about a table without the expected columns: its other sheets, and the row that seems to be the
    header or, if there is none, ``otherwise``.
    """
    return _header_advice(_open(path, (), "", encoding), otherwise)


def _header_advice(reader: Form, otherwise: str) -> str:
    return reader.sheets_advice() + (reader.title_advice() or otherwise)


def read_windows(
    paths: Iterable[Path],
    column: str,
    size: int,
    wanted: Callable[[int], bool],
    advice: str = "",
    encoding: Encoding = AUTO,
) -> Iterator[tuple[int, list[str]]]:
    """Yield (index, texts) for each selected window of rows. A window is a block of ``size`` rows, counted as in
    `count_rows`.

    Args:
        wanted: returns whether the window of this number is selected.
        advice: end of the error messages about values of the column.

    Raises:
        InputError: a row of a selected window has no text under ``column``, or a file is truncated.
    """
    pieces, number = _nonblank_pieces(paths, [column], encoding), 0
    while window := list(islice(pieces, size)):
        if wanted(number):
            yield number, [_text(reader, piece, column, advice) for reader, piece in window]
        number += 1


def _text(reader: Form, piece: Piece, column: str, advice: str) -> str:
    row = reader.row(*piece)
    if isinstance(row, BadRow):
        raise bad_row_error(row, reader.path)
    if isinstance(reader, Lines):
        column, advice = LINE, ""
    text = text_in(row, column)
    if isinstance(text, BadRow):
        if isinstance(reader, CommaTable | Sheet) and value_in(row.values, column) is MISSING:
            text, advice = text._replace(line=0), _header_advice(reader, advice)
        raise bad_row_error(text, reader.path, advice.strip())
    return text


def count_rows(paths: Iterable[Path], columns: Sequence[str] = (), encoding: Encoding = AUTO) -> int:
    """Count the rows of files without decoding them: all lines of .txt files, and the non-blank rows of other files.

    Raises:
        InputError: a file is truncated.
    """
    return sum(1 for _ in _nonblank_pieces(paths, columns, encoding))


def text_in(row: ParsedRow, name: str, strip_html: bool = False) -> str | BadRow:
    """Return the value ``name`` of a row as text, without HTML if ``strip_html`` is set. If the value is not a text
    that UTF-8 can encode, return the reason.

    A number is returned as the text that a .csv file would contain.
    """
    text = value_in(row.values, name)
    if isinstance(text, int | float | Decimal) and not isinstance(text, bool) and isfinite(text):
        text = str(text)
    if not isinstance(text, str):
        if text is MISSING:
            names = ", ".join(map(repr, row.values)) or "none"
            return BadRow(f"{name} is missing; the columns are {names}", row.line)
        if text is None or text != text:  # pandas writes NaN for a missing text
            return BadRow(f"{name} is null. Add a text or delete the row", row.line, "empty")
        return BadRow(f"expected a string in {name}, got {repr(text)[:MAX_QUOTE_CHARS]}", row.line)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON may contain half of a surrogate pair
            half = f"\\u{ord(text[error.start]):04x}"
            message = f"{name} contains half a surrogate pair, {half}, which is not a character"
            return BadRow(message, row.line, "undecodable")
    return visible_text(text) if strip_html else text


def _open(path: Path, columns: Sequence[str], form: str, encoding: Encoding) -> Form:
    form = form or form_of(path, FORMS)
    if form == ".json" and not _is_list(path, encoding):
        return JsonObjects(path, columns, encoding)
    return FORMS.get(form, Lines)(path, columns, encoding)


def _pieces(reader: Form) -> Iterator[Piece | BadRow]:
    if _is_empty(reader.path):
        return iter([BadRow(EMPTY, 1, "empty")])
    return reader.pieces()


def _is_empty(path: Path) -> bool:
    """Return whether the file has no bytes, after decompression."""
    if not path.stat().st_size or path.suffix.lower() != ".gz":
        return not path.stat().st_size
    try:
        with open_decompressed(path) as stream:
            return not stream.read(1)
    except UNREADABLE:
        return False  # the reader reports the error


def _nonblank_pieces(paths: Iterable[Path], columns: Sequence[str], encoding: Encoding) -> Iterator[tuple[Form, Piece]]:
    for path in paths:
        reader = _open(path, columns, DOCUMENT if form_of(path, DOCUMENTS) not in ("", SHEET) else "", encoding)
        for piece in _pieces(reader):
            if isinstance(piece, BadRow):
                require_valid_row(piece, path)
            elif not (reader.blank.fullmatch(piece[1]) if isinstance(piece[1], bytes) else piece[1] in ([], {})):
                yield reader, piece


# ------------------------------------------------------------------------------------------------------ lines and JSON


class _DuplicateNames(dict[str, Any]):
    """A JSON object in which at least one name occurs twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _DuplicateNames(pairs)


DECODER = json.JSONDecoder(object_pairs_hook=_object)


class JsonLines(Form):
    """Reader of .jsonl files, which contain one JSON object per line. An object without values is a blank row, as a
    blank line is.
    """

    blank = re.compile(rb"%(s)s*(?:\{%(s)s*\}%(s)s*)?" % {b"s": SPACE})

    def row(self, line: int, piece: bytes) -> ParsedRow | BadRow:
        if self.blank.fullmatch(piece):
            return ParsedRow({}, line)
        text = decode_utf8(piece, line, self.encoding)
        if isinstance(text, BadRow):
            return text
        try:
            return _json_row(DECODER.decode(text), line)
        except (ValueError, RecursionError) as error:  # also raised for a number with thousands of digits
            quote = repr(text[:MAX_QUOTE_CHARS])
            return BadRow(f"invalid JSON ({error}) in {quote}. Write one JSON object per line", line)


def _json_row(found: Any, line: int) -> ParsedRow | BadRow:
    if type(found) is dict:
        return ParsedRow(found, line)
    if isinstance(found, _DuplicateNames):
        return BadRow("the JSON object has several values with the same name. Rename them", line)
    got = f"{type(found).__name__} {repr(found)[:MAX_QUOTE_CHARS]}"
    return BadRow(f"expected a JSON object with named values, got {got}", line)


class JsonObjects(JsonLines):
    """Reader of .json files that contain one JSON object per line."""

    def row(self, line: int, piece: bytes) -> ParsedRow | BadRow:
        row = super().row(line, piece)
        if line > 1 or isinstance(row, BadRow) or not _is_table(row.values):
            return row
        names = ", ".join(map(repr, row.values))[:MAX_QUOTE_CHARS]
        return BadRow(
            f"expected a list of JSON objects, [{{...}}, ...], or one object per line, got one object with all rows in "
            f"{names}. Write the rows themselves; pandas does with DataFrame.to_json(FILE, orient='records')",
            line,
            ends_file=True,
        )


def _is_table(values: Mapping[str, Any]) -> bool:
    """Return whether a JSON object contains an entire table: a mapping from row numbers to cells for each column, as
    pandas writes by default, a list of cells for each column, or a list of rows.
    """
    cells = list(values.values())
    if all(isinstance(cell, list) for cell in cells):
        return len(cells) > 1 or any(isinstance(row, dict) for cell in cells for row in cell[:1])
    return all(isinstance(cell, dict) and all(map(str.isdigit, cell)) for cell in cells)


class JsonList(Form):
    """Reader of .json files that contain a list of JSON objects."""

    def pieces(self) -> Iterator[Piece | BadRow]:
        line = 1
        try:
            with open_text(self.path, self.encoding) as stream:
                for line, found in items_of(stream, DECODER):
                    yield line, found
        except InvalidJSONListError as error:
            if error.decoded:
                hint = "Write a list of JSON objects, [{...}, ...], or one object per line"
                yield BadRow(f"{error}. {hint}", error.line, ends_file=True)
            else:
                hint = f"If the file has another encoding, {self.encoding.hint()}"
                yield BadRow(f"{error}. {hint}", error.line, "undecodable", ends_file=True)
        except UNREADABLE as error:
            yield describe_read_error(error, line)

    def row(self, line: int, piece: Any) -> ParsedRow | BadRow:
        return _json_row(piece, line)


def _is_list(path: Path, encoding: Encoding) -> bool:
    """Return whether a .json file is read as a JSON list; otherwise, it is read as one JSON object per line. A single
    object over several lines is read as a list, so that the reader of lists reports the error.
    """
    try:
        with open_text(path, encoding) as stream:
            begin = stream.read(BLOCK).lstrip()
    except UNREADABLE:
        return False  # its reader reports the error
    return re.match(rb"\[|\{(?:[^\n]*(?:[{\[]|[^}\]],))?\s*\n", begin) is not None


# ------------------------------------------------------------------------------------------------------------- Parquet


class Parquet(Form):
    """Reader of the requested columns of .parquet files, one batch of rows at a time. Batches of skipped rows are not
    decoded.
    """

    def pieces(self) -> Iterator[Piece | BadRow]:
        import pyarrow
        import pyarrow.parquet

        line = 0
        try:
            with _open_seekable(self.path) as stream, pyarrow.parquet.ParquetFile(stream) as file:
                there = file.schema_arrow.names
                columns = top_level(self.columns, there) or there
                for batch in file.iter_batches(PARQUET_BATCH_ROWS, columns=columns):
                    rows = _Batch(batch, columns)
                    for place in range(len(batch)):
                        line += 1
                        yield line, (rows, place)
        except (pyarrow.ArrowException, *UNREADABLE, UnicodeDecodeError) as error:
            yield BadRow(f"not a valid Parquet file ({error}). Copy or write it again", line + 1, ends_file=True)

    def row(self, line: int, piece: Any) -> ParsedRow | BadRow:
        rows, place = piece
        values: dict[str, Any] = rows.values(place)
        return ParsedRow(values, line)


class _Batch:
    """Batch of Parquet rows, which is decoded when the first of its rows is requested."""

    def __init__(self, batch: Any, names: Sequence[str]) -> None:
        self.batch, self.names = batch, names
        self.columns: list[list[Any]] = []

    def values(self, place: int) -> dict[str, Any]:
        if not self.columns:
            self.columns = [column.to_pylist() for column in self.batch.columns]
        return {name: column[place] for name, column in zip(self.names, self.columns, strict=True)}


def _open_seekable(path: Path) -> IO[bytes]:
    """Open a file for random access, because Parquet is read from its end. A compressed file is decompressed into an
    anonymous temporary file.
    """
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
    **dict.fromkeys(DOCUMENTS, DocumentReader),
    ".xlsx": Sheet,
    DOCUMENT: DocumentReader,
}
