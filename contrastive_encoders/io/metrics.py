"""Reader of ``metrics.csv``: one row per step, one column per metric."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, str]


def read_rows(path: str | Path) -> list[Row]:
    """Return the rows of a ``metrics.csv`` in order, without empty cells. An incomplete last line is ignored."""
    return parse_rows(Path(path).read_text(encoding="utf-8"))


def parse_rows(content: str) -> list[Row]:
    """Parse the content of a ``metrics.csv``, and return its rows as `read_rows` does."""
    whole, _, _ = content.rpartition("\n")
    rows = csv.DictReader(io.StringIO(whole + "\n"))
    return [
        {name: cell for name, cell in row.items() if name and cell} for row in rows if (row.get("step") or "").isdigit()
    ]


def numbers(rows: Sequence[Row]) -> list[dict[str, float]]:
    """Return the rows with every cell converted to a number.

    Raises:
        ValueError: a cell is not a number, for example after an edit by hand.
    """
    return [{name: float(cell) for name, cell in row.items()} for row in rows]
