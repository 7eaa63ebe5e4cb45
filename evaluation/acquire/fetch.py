"""Gets the sets and writes them as tables; what is there is kept."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from contracts import InputError
from evaluation.acquire.archives import BadArchive, Members
from evaluation.acquire.download import FOLDER, Downloads, NotGot
from evaluation.acquire.origin import Alternative, Origin
from evaluation.acquire.registry import chosen
from evaluation.acquire.report import Report, Row
from evaluation.acquire.tables import FORM, TEXTS, Rows, Table, write, write_vectors
from evaluation.tsv import read_rows

log = logging.getLogger(__name__)


def fetch(
    data_root: Path,
    tasks: Sequence[str] | None = None,
    source: str | None = None,
    quiet: bool = False,
    timeout: float = 30,
) -> Report:
    """Makes the tables of ``tasks`` (names of tasks or sets; None: all) that are not under ``data_root`` yet.

    Args:
        source: a folder with the archives under their file names, or with an unpacked SentEval folder, or the URL under
            which a mirror has them; None: the hosts that ``listing`` names, in that order.
        quiet: no progress bar.
        timeout: seconds without an answer after which a host counts as down.

    Raises:
        InputError: an unknown task, a source that is no folder, or a data_root that cannot be made.
    """
    if source and not source.startswith(("http://", "https://")) and not Path(source).is_dir():
        raise InputError(f"source={source}: no such folder; wanted a folder with the archives, or an http(s) URL.")
    origins = chosen(tasks)
    downloads = Downloads(data_root, source, quiet, timeout)
    with _no_empty_folders(data_root, [folder for origin in origins for folder in _folders(data_root, origin)]):
        rows = [row for origin in origins for row in _fetch_set(data_root, origin, downloads)]
    return Report(rows, well=not any(row.state == "failed" for row in rows))


def _folders(root: Path, origin: Origin) -> Iterator[Path]:
    yield from (table.path(root).parent for table in origin.tables)
    yield root / FOLDER
    yield from ((root / FOLDER / file.name).parent for place in origin.alternatives for file in place.files)


@contextlib.contextmanager
def _no_empty_folders(root: Path, folders: Sequence[Path]) -> Iterator[None]:
    """Makes ``root``; in the end, none of the folders is there that was not there before and got nothing."""
    new = {one for one in (root, *root.parents, *folders) if not one.exists()}
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "there is a file of that name" if isinstance(error, FileExistsError) else error.strerror
        raise InputError(f"data_root={root}: wanted a folder, and cannot make it ({reason}). Name another.") from None
    try:
        yield
    finally:
        for folder in sorted(new, key=lambda one: len(one.parts), reverse=True):
            with contextlib.suppress(OSError):  # not made, or something is in it
                folder.rmdir()


def _fetch_set(root: Path, origin: Origin, downloads: Downloads) -> list[Row]:
    rows = {
        table.key: Row(table.key, "kept", "was there; action=check reads it")
        for table in origin.tables
        if table.path(root).is_file()
    }
    reasons: dict[str, list[str]] = {table.key: [] for table in origin.tables}  # why a place did not give it
    _derive(root, origin, rows, reasons)
    for place in origin.alternatives:
        missing = [table for table in origin.tables if table.key not in rows and table.key in place.tables]
        if not missing:
            continue
        try:
            members = Members([downloads.get(file) for file in place.files])
        except (NotGot, BadArchive) as error:
            log.info("%s from %s: %s", origin.name, place.name, error)
            for table in missing:
                reasons[table.key].append(f"{place.name}: {error}")
            continue
        remarks = [downloads.remarks[file.name] for file in place.files if file.name in downloads.remarks]
        for table in missing:
            try:
                count = _make(root, table, place, members)
            except ValueError as error:  # BadArchive is one
                reasons[table.key].append(f"{place.name}: {error}")
            else:
                said = [f"{count} rows from {place.name}", *reasons[table.key], *remarks]
                rows[table.key] = Row(table.key, "fetched", "; ".join(said))
        _derive(root, origin, rows, reasons)
    return [rows.get(table.key) or _failed(origin, table, reasons) for table in origin.tables]


def _failed(origin: Origin, table: Table, reasons: Mapping[str, list[str]]) -> Row:
    raw = table.key.removesuffix(FORM)
    said = [*(f"no {raw} to make it of" for _ in range(raw != table.key)), *reasons[table.key]]
    places = (place for place in origin.alternatives if {raw, table.key} & set(place.tables))
    files = dict.fromkeys(" and ".join(file.name for file in place.files) for place in places)
    said.append(f"put {', or '.join(files)} into a folder and say source=FOLDER")
    return Row(table.key, "failed", "; ".join(said))


def _make(root: Path, table: Table, place: Alternative, members: Members) -> int:
    """Writes the table; the number of its rows. ValueError: why this place's table was not taken."""
    made = place.tables[table.key](members)
    if isinstance(made, np.ndarray):
        return write_vectors(table.path(root), made, table.rows)
    return write(table.path(root), table.columns, made, table.rows)


def _derive(root: Path, origin: Origin, rows: dict[str, Row], reasons: Mapping[str, list[str]]) -> None:
    """Makes the text form of SentEval of raw tables that are there."""
    for table in origin.tables:
        raw = table._replace(name=table.name.removesuffix(FORM))
        path = raw.path(root)
        if table.change and table.key not in rows and path.is_file():
            try:
                count = write(table.path(root), table.columns, _changed(table, path), table.rows)
            except (InputError, ValueError) as error:
                reasons[table.key].append(f"from {raw.name}: {error}")
            else:
                rows[table.key] = Row(table.key, "fetched", f"{count} rows made of {raw.name}")


def _changed(table: Table, path: Path) -> Rows:
    change = table.change
    assert change is not None, "only tables in SentEval's form are made of others"
    for _, cells in read_rows(path, table.columns):
        yield [change(cell) if name in TEXTS else cell for name, cell in zip(table.columns, cells, strict=True)]
