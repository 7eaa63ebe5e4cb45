"""Registry of data sets, with the tasks that need them and the status of their files."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.key_suggestions import nearest
from contrastive_encoders.evaluation.catalog import ENTRIES, SUITES
from contrastive_encoders.evaluation.download import captions, domain, labeled, sts
from contrastive_encoders.evaluation.download.dataset_specs import FORM, DatasetSpec, TableSpec
from contrastive_encoders.evaluation.tables import table
from contrastive_encoders.io.download import RECORD
from contrastive_encoders.io.manifest import sha256_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_GOOD_STATES, _MISSING_STATES = ("ok", "fetched", "kept", "there"), ("missing", "absent")
_FAMILIES = (sts.ORIGINS, labeled.ORIGINS, captions.ORIGINS, labeled.PROBING_ORIGINS, domain.ORIGINS)
ORIGINS: dict[str, DatasetSpec] = {origin.name: origin for family in _FAMILIES for origin in family}


def select_sets(names: Sequence[str] | None) -> list[DatasetSpec]:
    """Return the data sets that ``names`` selects: names of data sets, suites (``sts``), or tasks
    (``stsb-dev@senteval``); None: all data sets.

    Raises:
        InputError: a name is unknown.
    """
    if names is None:
        return list(ORIGINS.values())
    return [ORIGINS[name] for name in dict.fromkeys(one for name in _split_names(names) for one in _sets(name))]


def required_tables(names: Sequence[str]) -> set[str]:
    """Return the tables that the tasks and data sets in ``names`` require; suites are ignored."""
    tables = {table for name in _split_names(names) for table in tables_of(name)}
    sets = [ORIGINS[name] for name in _split_names(names) if name in ORIGINS]
    return tables | {table.key for origin in sets for table in origin.tables if not table.change}


def tables_of(task: str) -> list[str]:
    """Return the tables from which a task is read, or an empty list if the name is not that of a task."""
    plain, _, form = task.partition("@")
    return [f"{name}.{form}" if form else name for name in ENTRIES[plain].rows] if plain in ENTRIES else []


def _split_names(names: Sequence[str]) -> list[str]:
    return [one.strip() for name in names for one in name.split(",")]


def _sets(name: str) -> list[str]:
    if name in ORIGINS:
        return [name]
    plain = name.partition("@")[0]
    tasks = SUITES.get(plain, (plain,))
    if not set(tasks) <= set(ENTRIES):
        near = nearest(name, [*ORIGINS, *SUITES, *ENTRIES])
        raise InputError(
            key="suite",
            value=name,
            expected=f"a task, a suite ({', '.join(SUITES)}), or a data set ({', '.join(ORIGINS)})",
            hint=f"Did you mean {near}?" if near else None,
        )
    sets = [table.partition("/")[0] for task in tasks for table in ENTRIES[task].rows]
    if generated := [one for one in sets if one not in ORIGINS]:
        raise InputError(
            key="suite",
            value=name,
            expected=f"downloadable tables, but {generated[0]} is generated from the installed packages",
            hint=f"Generate it: contrastive-encoders download-data {generated[0]} output=DATA_ROOT.",
        )
    return sets


class TableStatus(NamedTuple):
    table: str  # "STS12/test"
    state: str  # fetched, kept, failed | ok, missing, short, long, damaged | there, absent
    detail: str  # number of rows and origin, or the problem and its solution


class DataStatus(NamedTuple):
    rows: Sequence[TableStatus]
    ok: bool  # nothing that was requested is missing or wrong

    def render(self) -> "Iterator[RenderableType]":
        """Yield the terminal output: a table of files with their states, and a line with the count of each state."""
        from rich.table import Column, Table
        from rich.text import Text

        # A path that is wider than the terminal is wrapped, not truncated
        table = Table("table", "state", Column(overflow="fold"), box=None, padding=(0, 2, 0, 0))
        for row in self.rows:
            color = "green" if row.state in _GOOD_STATES else "yellow" if row.state in _MISSING_STATES else "bold red"
            table.add_row(Text(row.table), Text(row.state, color), Text(row.detail))
        yield table
        yield ", ".join(f"{count} {state}" for state, count in Counter(row.state for row in self.rows).items())


def listing(data_root: Path, tasks: Sequence[str] | None = None) -> DataStatus:
    """List the tables of the given suites, tasks, or data sets (None: all).

    A row contains the origin and license of the table, and whether it is present. Only folders are read.
    """
    rows = [_list_table(data_root, origin, table) for origin in select_sets(tasks) for table in origin.tables]
    return DataStatus(rows, ok=True)


def _list_table(root: Path, origin: DatasetSpec, table: TableSpec) -> TableStatus:
    places = dict.fromkeys(f"from {place.name}" for place in origin.places if table.key in place.tables)
    sources = [f"derived from {table.name.removesuffix(FORM)}"] if table.change else []
    parts = [f"{table.rows} rows" if table.rows else "rows: not stated", ", or ".join([*sources, *places])]
    parts += [f"license: {origin.license}", *([origin.note] if origin.note else [])]
    return TableStatus(table.key, "there" if table.path(root).is_file() else "absent", "; ".join(parts))


def manifest(data_root: Path, tasks: Sequence[str]) -> dict[str, Any]:
    """Return the SHA-256 checksums of the tables from which ``tasks`` are read and, if downloaded, of their source
    files.
    """
    names = sorted({name for task in tasks for name in tables_of(task)})
    paths = {name: table(data_root, name) for name in names}
    record = data_root / RECORD
    return {
        "data_root": str(data_root),
        "tables": {name: sha256_of(path) for name, path in paths.items() if path.is_file()},
        "downloads": json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {},
    }
