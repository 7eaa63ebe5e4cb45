"""Read tab-separated tables strictly: every error message names the file and the line."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from contrastive_encoders.core import InputError
from contrastive_encoders.io.rows import Encoding, read_rows, require_valid_row

UTF_8 = Encoding("UTF-8")  # of published tables: another encoding means that the file is damaged
SENTEVAL = "@senteval"  # suffix of the name of a task whose texts are in the form that SentEval passes to an encoder


def table(root: Path, name: str, task: str = "") -> Path:
    """Return the file of a table, ``root/SST2/train.tsv``, or the file with ``.gz`` if only that exists.

    ``task`` is the task that is read from it. ``NAME@senteval`` has its own tables.
    """
    path = root / f"{name}{'.senteval' if task.endswith(SENTEVAL) else ''}.tsv"
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def read_columns(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield ("file:line", the ``wanted`` columns) for each row below the header.

    Raises:
        InputError: a row cannot be read or is blank, or the header lacks a column.
    """
    for found in read_rows(path, encoding=UTF_8):
        row = require_valid_row(found, path)
        where = f"{path}:{row.line}"
        if not row.values:
            raise InputError(f"{where}: the line is blank; wanted {', '.join(wanted)}. Delete it.")
        if missing := [name for name in wanted if name not in row.values]:
            raise InputError(
                f"{path}:1: wanted the columns {', '.join(wanted)}; {', '.join(missing)} missing from the header "
                f"{list(row.values)!r}. The first line must name the columns, separated by tabs."
            )
        yield where, [row.values[name] for name in wanted]


def read_text(where: str, column: str, cell: str) -> str:
    text = cell.strip()
    if not text:
        raise InputError(f"{where}: {column} is empty; wanted a text. Give it one or delete the row.")
    return text


def read_number(where: str, column: str, cell: str, low: float, high: float) -> float:
    wanted = f"wanted a number from {low:g} to {high:g}"
    try:
        number = float(cell)
    except ValueError:
        raise InputError(f"{where}: {column} is {cell!r}; {wanted}. Correct it or delete the row.") from None
    if not low <= number <= high:  # also false for NaN
        raise InputError(f"{where}: {column} is {cell!r}; {wanted}. Correct it, rescale the column or delete the row.")
    return number
