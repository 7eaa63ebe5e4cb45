"""Read tab-separated tables strictly: every error message names the file and the line."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from contrastive_encoders.core import InputError
from contrastive_encoders.io.rows import Encoding, read_rows, require_valid_row

UTF_8 = Encoding("UTF-8")  # of published tables: another encoding means that the file is damaged
ROW_HINT = "Correct the row or delete it."
SENTEVAL = "@senteval"  # suffix of the name of a task whose texts are in the form that SentEval passes to an encoder


def table(root: Path, name: str, task: str = "") -> Path:
    """Return the path of a table, ``root/SST2/train.tsv``, or the file with ``.gz`` if only that exists.

    ``task`` is the name of the task that reads the table. ``NAME@senteval`` has separate tables.
    """
    path = root / f"{name}{'.senteval' if task.endswith(SENTEVAL) else ''}.tsv"
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def read_columns(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield ("file:line", cells of ``columns``) for each row below the header.

    Raises:
        InputError: a row cannot be read or is blank, or the header lacks a column.
    """
    for raw_row in read_rows(path, encoding=UTF_8):
        row = require_valid_row(raw_row, path)
        where = f"{path}:{row.line}"
        if not row.values:
            raise InputError(location=where, value="a blank line", expected=", ".join(columns), hint="Delete the line.")
        if missing := [name for name in columns if name not in row.values]:
            raise InputError(
                location=f"{path}:1",
                value=list(row.values),
                expected=f"a header with the columns {', '.join(columns)}",
                hint=f"Add {', '.join(missing)}. The first line names the columns, separated by tabs.",
            )
        yield where, [row.values[name] for name in columns]


def read_text(where: str, column: str, cell: str) -> str:
    text = cell.strip()
    if not text:
        raise InputError(location=where, key=column, value="an empty cell", expected="a text", hint=ROW_HINT)
    return text


def read_number(where: str, column: str, cell: str, low: float, high: float) -> float:
    expected = f"a number from {low:g} to {high:g}"
    try:
        number = float(cell)
    except ValueError:
        raise InputError(location=where, key=column, value=repr(cell), expected=expected, hint=ROW_HINT) from None
    if not low <= number <= high:  # also false for NaN
        hint = "Correct the row, rescale the column, or delete the row."
        raise InputError(location=where, key=column, value=repr(cell), expected=expected, hint=hint)
    return number
