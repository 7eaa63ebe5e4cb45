"""Every set: its tables, where they come from, under which licence, and whether they are there."""

from collections.abc import Sequence
from pathlib import Path

from evaluation.acquire.origin import Origin
from evaluation.acquire.registry import chosen
from evaluation.acquire.report import Report, Row
from evaluation.acquire.tables import FORM, Table


def listing(data_root: Path, tasks: Sequence[str] | None = None) -> Report:
    """One row per table of ``tasks`` (names of suites, tasks or sets; None: all); nothing is read but folders."""
    rows = [_row(data_root, origin, table) for origin in chosen(tasks) for table in origin.tables]
    return Report(rows, well=True)


def _row(root: Path, origin: Origin, table: Table) -> Row:
    places = list(dict.fromkeys(place.name for place in origin.alternatives if table.key in place.tables))
    places = [
        *([f"made of {table.name.removesuffix(FORM)}"] if table.change else []),
        *(f"from {one}" for one in places),
    ]
    said = [f"{table.rows} rows" if table.rows else "rows: not stated", ", or ".join(places)]
    said.append(f"licence: {origin.licence}")
    if origin.note:
        said.append(origin.note)
    return Row(table.key, "there" if table.path(root).is_file() else "absent", "; ".join(said))
