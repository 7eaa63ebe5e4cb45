"""Reader of ``metrics.csv``: one row per step, one column per metric."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, str]


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a ``metrics.csv`` in order, without empty cells; an unfinished last line is left out."""
    return parse_rows(Path(path).read_text(encoding="utf-8"))


def parse_rows(content: str) -> list[Row]:
    """The rows of the content of a ``metrics.csv``, as `read_rows` returns them."""
    whole, _, _ = content.rpartition("\n")
    rows = csv.DictReader(io.StringIO(whole + "\n"))
    return [{name: cell for name, cell in row.items() if name and cell} for row in rows if _is_step(row.get("step"))]


def numbers(rows: Sequence[Row]) -> list[dict[str, float]]:
    """Read every cell as a number.

    Raises:
        ValueError: a cell is no number, as after an edit by hand.
    """
    return [{name: float(cell) for name, cell in row.items()} for row in rows]


def _is_step(cell: str | None) -> bool:
    return cell is not None and cell.isdigit()
