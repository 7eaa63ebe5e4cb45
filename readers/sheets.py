"""Excel files as tables: the first sheet, whose first row names the columns."""

import io
import logging
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from contracts import InputError
from readers.delimited import bad_header
from readers.text_files import UNREADABLE, BadRow, Form, Piece, Row, broken, unpacked

log = logging.getLogger(__name__)


class Sheet(Form):
    """Reads .xlsx; every value is a text, as in a .csv, and an empty cell is null."""

    header: Sequence[str] = ()

    def pieces(self) -> Iterator[Piece | BadRow]:
        try:
            from openpyxl import load_workbook
            from openpyxl.utils.exceptions import InvalidFileException
        except ImportError:
            raise InputError(
                location=str(self.path),
                expected="openpyxl to read .xlsx",
                hint="Install it: pip install 'contrastive-encoders[documents]'.",
            ) from None
        try:
            with unpacked(self.path) as stream:
                book = load_workbook(io.BytesIO(stream.read()), read_only=True, data_only=True)
            rows = [[_text(cell) for cell in row] for row in book.worksheets[0].iter_rows(values_only=True)]
        except UNREADABLE as error:
            yield broken(error, 1)
            return
        except (zipfile.BadZipFile, InvalidFileException, ParseError, LookupError, ValueError, TypeError) as error:
            yield BadRow(f"no sound .xlsx file ({type(error).__name__}: {error}). Open and save it again", 1)
            return
        if len(book.sheetnames) > 1:
            _log_sheet(self.path, book.sheetnames[0], len(book.sheetnames))
        for line, cells in enumerate(rows, start=1):
            if self.header:
                yield line, [] if not any(cells) else cells
            elif any(cells):
                self.header = [cell or "" for cell in cells]
                if (bad := bad_header(self.header)) is not None:
                    yield bad
                    return

    def row(self, line: int, piece: Any) -> Row | BadRow:
        named = zip(self.header, piece, strict=False)  # a sheet may have rows of fewer cells
        return Row({name: cell for name, cell in named if name}, line)


def _text(cell: Any) -> str | None:
    """Return a value as a text; null for an empty cell."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return None if cell is None or cell == "" else str(cell)


@cache  # a command reads a file several times
def _log_sheet(path: Path, name: str, sheets: int) -> None:
    log.info("%s: read the first of %d sheets, %r", path, sheets, name)
