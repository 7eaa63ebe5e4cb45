"""Read the columns of a custom task's files. Every error message contains the file and the line."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.task import EMPTY
from contrastive_encoders.io.file_discovery import list_files
from contrastive_encoders.io.rows import (
    AUTO,
    MAX_QUOTE_CHARS,
    BadRow,
    Encoding,
    ParsedRow,
    read_rows,
    require_valid_row,
    text_in,
)

SPLIT = "split"  # column with the split of a row


class TableRow(NamedTuple):
    """A row of a custom task's file, with the file and line for messages."""

    where: str  # "file:line"
    row: ParsedRow

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        text = text_in(self.row, name)
        if isinstance(text, BadRow):
            raise InputError(f"{self.where}: {text.message}.")
        if not text.strip() and not may_be_empty:
            raise InputError(
                location=self.where,
                key=name,
                value="an empty cell",
                expected="a text",
                hint="Add a text or delete the row.",
            )
        return text.strip() or EMPTY

    def number(self, name: str) -> float:
        value = self.row.values.get(name)
        try:
            number = float(value) if isinstance(value, int | float | str) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self._invalid(name, "a number")
        return number

    def word(self, name: str) -> str:
        """Return an id or a label as a string. In the file, it is a string, an integer, or a boolean."""
        value = self.row.values.get(name)
        if not isinstance(value, int | str) or not str(value).strip():
            raise self._invalid(name, "an id or a label")
        return str(value).strip()

    def _invalid(self, name: str, expected: str) -> InputError:
        value = _quote(self.row.values.get(name))
        hint = "Correct the row or delete it."
        return InputError(location=self.where, key=name, value=value, expected=expected, hint=hint)

    def split_name(self) -> str | None:
        value = self.row.values.get(SPLIT)
        return None if value is None else str(value)


def _quote(value: Any) -> str:
    return "missing" if value is None else repr(value)[:MAX_QUOTE_CHARS]


def files_of(path: str | Path | Sequence[str | Path], key: str) -> list[Path]:
    return [file.path for file in list_files(path, key)]


def read_header(file: Path, encoding: Encoding = AUTO) -> list[str]:
    """Return the column names of the first row that is not empty, or an empty list if all rows are empty."""
    rows = (require_valid_row(one, file) for one in read_rows(file, encoding=encoding))
    return next((list(row.values) for row in rows if row.values), [])


def read(
    files: Sequence[Path], names: Sequence[str], optional: Sequence[str] = (), encoding: Encoding = AUTO
) -> Iterator[TableRow]:
    """Yield the rows that are not blank. All files must contain the columns ``names``.

    Raises:
        InputError: a row cannot be read, a column is missing, or there are no rows.
    """
    rows = 0
    for file in files:
        for one in read_rows(file, [*names, *optional, SPLIT], encoding=encoding):
            row = require_valid_row(one, file)
            if not row.values:
                continue
            if missing := [name for name in names if name not in row.values]:
                raise InputError(
                    location=f"{file}:{row.line}",
                    value=", ".join(map(repr, row.values)),
                    expected=f"the columns {', '.join(names)}",
                    hint=f"Rename the columns, or set columns in the task. Missing: {', '.join(missing)}.",
                )
            rows += 1
            yield TableRow(f"{file}:{row.line}", row)
    if not rows:
        raise InputError(location=str(files[0]), value="no rows", expected=f"rows with {', '.join(names)}")
