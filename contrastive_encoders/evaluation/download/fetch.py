"""Download evaluation data, and convert them to tables; existing tables are kept."""

import contextlib
import gzip
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.download.dataset_specs import FORM, TEXTS, DatasetSpec, Rows, TableSpec
from contrastive_encoders.evaluation.download.registry import DataStatus, TableStatus, select_sets
from contrastive_encoders.evaluation.tables import read_table
from contrastive_encoders.io.archives import InvalidArchiveError, Members
from contrastive_encoders.io.atomic import atomic_file, atomic_write
from contrastive_encoders.io.download import DownloadError, Downloads, find_in_folder

log = logging.getLogger(__name__)

SENTEVAL_FOLDERS = ("", "downstream", "data", "data/downstream")  # possible locations of the sets in a SentEval folder
SENTEVAL_SETS = ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SNLI")


def fetch(
    data_root: Path,
    tasks: Sequence[str] | None = None,
    source: str | None = None,
    quiet: bool = False,
    timeout: float = 30,
) -> DataStatus:
    """Download the tables of the given tasks or data sets (None: all) that are missing under ``data_root``.

    Args:
        data_root: folder of the tables.
        tasks: names of tasks or sets; None: all.
        source: a folder with the archives under their file names or with an unpacked SentEval folder, or the URL of a
            mirror; None: the hosts that ``listing`` names, in that order.
        quiet: whether to hide the progress bar.
        timeout: seconds without an answer after which a host counts as unavailable.

    Raises:
        InputError: a task is unknown, the source is not a folder, or ``data_root`` cannot be created.
    """
    origins = select_sets(tasks)
    downloads = Downloads(data_root, source, quiet, timeout, find_in_senteval)
    try:
        data_root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "a file has that name" if isinstance(error, FileExistsError) else error.strerror
        raise InputError(
            key="data_root", value=data_root, expected=f"a directory that can be created ({reason})"
        ) from None
    rows = [row for origin in origins for row in _fetch_set(data_root, origin, downloads)]
    return DataStatus(rows, ok=not any(row.state == "failed" for row in rows))


def find_in_senteval(folder: Path, name: str) -> Path:
    """Return the path of a source file in ``folder``; for ``senteval.tar``, also accept an extracted SentEval
    folder.
    """
    places = [folder / place for place in SENTEVAL_FOLDERS]
    paths = [place / name for place in places if (place / name).is_file()]
    if name == "senteval.tar":
        paths += [place for place in places if any((place / one).is_dir() for one in SENTEVAL_SETS)]
    return paths[0] if paths else find_in_folder(folder, name)


def _fetch_set(root: Path, origin: DatasetSpec, downloads: Downloads) -> list[TableStatus]:
    rows = {
        table.key: TableStatus(table.key, "kept", "already present")
        for table in origin.tables
        if table.path(root).is_file()
    }
    reasons: dict[str, list[str]] = {table.key: [] for table in origin.tables}  # why a location did not provide it
    _derive(root, origin, rows, reasons)
    for place in origin.places:
        missing = [table for table in origin.tables if table.key not in rows and table.key in place.tables]
        if not missing:
            continue
        try:
            members = Members([downloads.get(file) for file in place.files])
        except (DownloadError, InvalidArchiveError) as error:
            log.info("%s from %s: %s", origin.name, place.name, error)
            for table in missing:
                reasons[table.key].append(f"{place.name}: {error}")
            continue
        remarks = [downloads.remarks[file.name] for file in place.files if file.name in downloads.remarks]
        for table in missing:
            try:
                content = place.tables[table.key](members)
                if isinstance(content, np.ndarray):
                    count = _write_vectors(root, table, content)
                else:
                    count = _write_rows(root, table, content)
            except ValueError as error:  # includes InvalidArchiveError
                reasons[table.key].append(f"{place.name}: {error}")
            else:
                parts = [f"{count} rows from {place.name}", *reasons[table.key], *remarks]
                rows[table.key] = TableStatus(table.key, "fetched", "; ".join(parts))
        _derive(root, origin, rows, reasons)
    return [rows.get(table.key) or _failed(origin, table, reasons) for table in origin.tables]


def _failed(origin: DatasetSpec, table: TableSpec, reasons: Mapping[str, list[str]]) -> TableStatus:
    raw = table.key.removesuffix(FORM)
    parts = [*([f"no {raw} to derive it from"] if raw != table.key else []), *reasons[table.key]]
    places = (place for place in origin.places if {raw, table.key} & set(place.tables))
    files = dict.fromkeys(" and ".join(file.name for file in place.files) for place in places)
    parts.append(f"put {', or '.join(files)} into a directory and set download_mirror=FOLDER")
    return TableStatus(table.key, "failed", "; ".join(parts))


def _write_rows(root: Path, table: TableSpec, rows: Rows) -> int:
    """Write the header and the rows, with cells stripped. Raise ValueError if a row has the wrong number of cells."""
    path, count = table.path(root), 0
    with atomic_file(path) as part, _open(part, path) as file:
        file.write(_line(table.columns))
        for row in rows:
            if len(row) != len(table.columns):
                raise ValueError(f"row {count + 1} has {len(row)} cells instead of {len(table.columns)}")
            file.write(_line(row))
            count += 1
        _check_official(table, count, "rows")
    return count


def _write_vectors(root: Path, table: TableSpec, rows: np.ndarray) -> int:
    from safetensors.numpy import save

    _check_official(table, len(rows), "embeddings")
    atomic_write(table.path(root), save({"images": np.ascontiguousarray(rows)}))
    return len(rows)


def _check_official(table: TableSpec, count: int, unit: str) -> None:
    if table.rows not in (None, count):
        raise ValueError(f"{count} {unit} instead of {table.rows}")


@contextlib.contextmanager
def _open(part: Path, path: Path) -> Iterator[BinaryIO]:
    """Context manager that opens the temporary file ``part``, compressed with gzip if ``path`` ends in .gz."""
    with part.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:  # mtime=0: equal rows give equal bytes
            yield file  # type: ignore[misc]


def _line(cells: Sequence[str]) -> bytes:
    # A tab or line break in a text would split it into two cells or rows
    return ("\t".join(cell.strip().replace("\t", " ").replace("\n", " ") for cell in cells) + "\n").encode()


def _derive(root: Path, origin: DatasetSpec, rows: dict[str, TableStatus], reasons: Mapping[str, list[str]]) -> None:
    """Create the missing tables of SentEval's tokenized texts from those raw tables that exist."""
    for table in origin.tables:
        raw = table._replace(name=table.name.removesuffix(FORM))
        path = raw.path(root)
        if table.change and table.key not in rows and path.is_file():
            try:
                count = _write_rows(root, table, _convert_texts(table, path))
            except (InputError, ValueError) as error:
                reasons[table.key].append(f"from {raw.name}: {error}")
            else:
                rows[table.key] = TableStatus(table.key, "fetched", f"{count} rows derived from {raw.name}")


def _convert_texts(table: TableSpec, path: Path) -> Rows:
    change = table.change
    assert change is not None, "only tables in SentEval's form are derived from others"
    for row in read_table(path, table.columns):
        yield [change(row.values[name]) if name in TEXTS else row.values[name] for name in table.columns]
