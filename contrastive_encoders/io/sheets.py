"""Read Excel files as tables. Of several sheets, the first visible sheet that is not empty is read. Its first row
contains the column names.
"""

import io
import logging
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from contrastive_encoders.core import missing_package
from contrastive_encoders.io.delimited import bad_header, column_names
from contrastive_encoders.io.text_files import (
    UNREADABLE,
    BadRow,
    Form,
    ParsedRow,
    Piece,
    describe_read_error,
    open_decompressed,
    title_advice,
)

log = logging.getLogger(__name__)


class Sheet(Form):
    """Reader of ``.xlsx`` files that returns every value as a string, as in a ``.csv`` file, and an empty cell as
    None.
    """

    header: Sequence[str] = ()
    name = ""
    other_sheets: Sequence[Any] = ()

    def pieces(self) -> Iterator[Piece | BadRow]:
        try:
            from openpyxl import load_workbook
            from openpyxl.utils.exceptions import InvalidFileException
        except ImportError:
            raise missing_package("openpyxl", "documents", location=str(self.path)) from None
        try:
            with open_decompressed(self.path) as stream:
                book = load_workbook(io.BytesIO(stream.read()), read_only=True, data_only=True)
            name, rows = next(filter(_has_cells, map(_rows_of, book.worksheets)), ("", []))
        except UNREADABLE as error:
            yield describe_read_error(error, 1)
            return
        except (
            zipfile.BadZipFile,
            InvalidFileException,
            ParseError,
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
        ) as error:
            yield BadRow(
                f"not a valid .xlsx file ({type(error).__name__}: {error}). Open and save it again", 1, ends_file=True
            )
            return
        self.name, self.other_sheets = name, [one for one in book.worksheets if one.title != name]
        if self.other_sheets:
            _log_sheet(self.path, name, len(book.worksheets))
        for line, cells in enumerate(rows, start=1):
            if self.header:
                yield line, [] if not any(cells) else cells
            elif any(cells):
                self.header = column_names([cell or "" for cell in cells])
                if (bad := bad_header(self.header)) is not None:
                    yield bad
                    return

    def title_advice(self) -> str:
        pieces = list(self.pieces())
        return title_advice([(1, self.header), *(piece for piece in pieces if not isinstance(piece, BadRow))])

    def sheets_advice(self) -> str:
        list(self.pieces())
        others = [
            f"{name} ({', '.join(filter(None, next(filter(any, rows))))})"
            for name, rows in filter(_has_cells, map(_rows_of, self.other_sheets))
        ]
        if not others:
            return ""
        return (
            f"The sheet {self.name} was read; the file also has {'; '.join(others)}. To read another sheet, make it "
            "the first, or save it as its own file. Otherwise: "
        )

    def row(self, line: int, piece: Any) -> ParsedRow | BadRow:
        cells = [*piece, *[None] * (len(self.header) - len(piece))]  # a row ends at its last cell
        return ParsedRow(
            {name: cell for name, cell in zip(self.header, cells, strict=False) if name} if piece else {}, line
        )


def _rows_of(sheet: Any) -> tuple[str, list[list[str | None]]]:
    """Return the name of a sheet and its rows; a hidden sheet has no rows."""
    if sheet.sheet_state != "visible":
        return sheet.title, []
    sheet.reset_dimensions()  # some programs write A1 as the size of any sheet
    return sheet.title, [[_text(cell) for cell in row] for row in sheet.iter_rows()]


def _has_cells(sheet: tuple[str, list[list[str | None]]]) -> bool:
    return any(map(any, sheet[1]))


def _text(cell: Any) -> str | None:
    """Return the value of a cell as a string, or None for an empty cell or an error such as #N/A."""
    value = None if cell.data_type == "e" else cell.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or value == "" else str(value)


@cache  # a command reads a file several times
def _log_sheet(path: Path, name: str, sheets: int) -> None:
    log.info("%s: read the sheet %r, one of %d", path, name, sheets)
