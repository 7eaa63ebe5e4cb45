"""Read the tables of evaluation tasks, published or custom. Every error message contains the file and the line."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from contrastive_encoders.core import InputError
from contrastive_encoders.io.rows import MAX_QUOTE_CHARS, read_rows, text_in
from contrastive_encoders.io.text_files import AUTO, BadRow, Encoding, ParsedRow, require_valid_row

Known = TypeVar("Known")

EMPTY = "."  # replaces an empty text, which tokenizers treat differently
UTF_8 = Encoding("UTF-8")  # of published tables: another encoding means that the file is damaged
ROW_HINT = "Correct the row or delete it."
SENTEVAL = "@senteval"  # suffix of the name of a task whose texts are in the form that SentEval passes to an encoder
SPLIT = "split"  # column with the split of a row of a custom table


def table(root: Path, name: str, task: str = "") -> Path:
    """Return the path of a published table, such as ``root/SST2/train.tsv``, with ``.gz`` appended if only the
    compressed file exists.

    ``task`` is the name of the task that reads the table. ``NAME@senteval`` has separate tables.
    """
    path = root / f"{name}{'.senteval' if task.endswith(SENTEVAL) else ''}.tsv"
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


class TableRow(NamedTuple):
    """A row of a table, with the file and line for messages."""

    where: str  # "file:line"
    values: dict[str, Any]

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        """Return the text in a column, without surrounding spaces.

        With ``may_be_empty``, an empty text becomes `EMPTY`.
        """
        text = text_in(ParsedRow(self.values, 0), name)
        if isinstance(text, BadRow):
            raise InputError(f"{self.where}: {text.message}.")
        if not text.strip() and not may_be_empty:
            hint = "Add a text or delete the row."
            raise InputError(location=self.where, key=name, value="an empty cell", expected="a text", hint=hint)
        return text.strip() or EMPTY

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float:
        value = self.values.get(name)
        try:
            number = float(value) if isinstance(value, int | float | str) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and low <= number <= high:
            return number
        if math.isinf(low):
            raise self._invalid(name, "a number")
        expected = f"a number from {low:g} to {high:g}"
        raise self._invalid(name, expected, "Correct the row, rescale the column, or delete the row.")

    def word(self, name: str) -> str:
        """Return an id or a label as a string. In the file, it is a string, an integer, or a boolean."""
        value = self.values.get(name)
        if not isinstance(value, int | str) or not str(value).strip():
            raise self._invalid(name, "an id or a label")
        return str(value).strip()

    def label(self, name: str, known: Mapping[str, Known]) -> Known:
        """Return the value to which ``known`` maps the label in a column, for example a class number.

        Raises:
            InputError: the label is not one of ``known``.
        """
        label = self.word(name)
        if label not in known:
            raise self._invalid(name, f"one of {', '.join(list(known)[:10])}{', ...' if len(known) > 10 else ''}")
        return known[label]

    def split_name(self) -> str | None:
        value = self.values.get(SPLIT)
        return None if value is None else str(value)

    def _invalid(self, name: str, expected: str, hint: str = ROW_HINT) -> InputError:
        value = self.values.get(name)
        shown = "missing" if value is None else repr(value)[:MAX_QUOTE_CHARS]
        return InputError(location=self.where, key=name, value=shown, expected=expected, hint=hint)


def read_table(file: Path, columns: Sequence[str]) -> Iterator[TableRow]:
    """Yield the rows of a published table, whose values are strings.

    Raises:
        InputError: a row cannot be read or is blank, or the header lacks a column.
    """
    for row in _rows(file, columns, UTF_8):
        if not row.values:
            expected = ", ".join(columns)
            raise InputError(location=row.where, value="a blank line", expected=expected, hint="Delete the line.")
        if missing := [name for name in columns if name not in row.values]:
            raise InputError(
                location=f"{file}:1",
                value=list(row.values),
                expected=f"a header with the columns {', '.join(columns)}",
                hint=f"Add {', '.join(missing)}. The first line names the columns, separated by tabs.",
            )
        yield row


def read_custom_table(
    file: Path, columns: Sequence[str], optional: Sequence[str] = (), encoding: Encoding = AUTO
) -> Iterator[TableRow]:
    """Yield the rows of a custom table that are not blank.

    Raises:
        InputError: a row cannot be read, a column is missing, or there are no rows.
    """
    rows = 0
    for row in _rows(file, [*columns, *optional, SPLIT], encoding):
        if not row.values:
            continue
        if missing := [name for name in columns if name not in row.values]:
            raise InputError(
                location=row.where,
                value=", ".join(map(repr, row.values)),
                expected=f"the columns {', '.join(columns)}",
                hint=f"Rename the columns, or set columns in the task. Missing: {', '.join(missing)}.",
            )
        rows += 1
        yield row
    if not rows:
        raise InputError(
            location=str(file), value="no rows", expected=f"at least one row with the columns {', '.join(columns)}"
        )


def read_header(file: Path, encoding: Encoding = AUTO) -> list[str]:
    """Return the column names of the first row that is not empty, or an empty list if all rows are empty."""
    return next((list(row.values) for row in _rows(file, (), encoding) if row.values), [])


def _rows(file: Path, columns: Sequence[str], encoding: Encoding) -> Iterator[TableRow]:
    for one in read_rows(file, columns, encoding=encoding):
        row = require_valid_row(one, file)
        yield TableRow(f"{file}:{row.line}", row.values)
