"""Integrity checks of evaluation tables."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.download.dataset_specs import TEXTS, DatasetSpec, TableSpec
from contrastive_encoders.evaluation.download.registry import DataStatus, TableStatus, chosen, needed
from contrastive_encoders.evaluation.tsv import read_columns, read_number

_AGAIN = "Delete it and fetch it again."
_READ = ("label", "score", "subset", "split", "entailment")
_NO_WORDS = "\ufffd"  # replacement character of a decoder for unknown bytes


def check(data_root: Path, tasks: Sequence[str] | None = None) -> DataStatus:
    """Check the tables of ``tasks`` (names of suites, tasks, or sets; None: all).

    The check passes if any table is present, if every present table is complete, and if no table is missing that is
    needed by a task or set given by its own name. Missing tables of a suite are allowed.

    Raises:
        InputError: a task is unknown, or ``data_root`` is not a folder.
    """
    if not data_root.is_dir():
        raise InputError(key="data_root", value=data_root, expected="a directory that exists")
    rows = [_check_table(data_root, origin, table) for origin in chosen(tasks) for table in origin.tables]
    asked = needed(tasks or ())
    bad = [row for row in rows if row.state not in ("ok", "missing") or (row.state == "missing" and row.table in asked)]
    return DataStatus(rows, well=not bad and any(row.state == "ok" for row in rows))


def _check_table(root: Path, origin: DatasetSpec, table: TableSpec) -> TableStatus:
    path = table.path(root)
    if not path.is_file():
        return TableStatus(
            table.key, "missing", f"action=fetch suite={origin.name} gets it from {origin.places[0].name}"
        )
    try:
        return _check_vectors(table, path) if table.format != "tsv" else _check_texts(table, path)
    except InputError as error:
        return TableStatus(table.key, "damaged", str(error))


def _check_texts(table: TableSpec, path: Path) -> TableStatus:
    columns = [name for name in table.columns if name in _READ or name in TEXTS]
    rows = list(read_columns(path, columns))
    if state := _state_of_count(table, len(rows)):
        return TableStatus(table.key, state, f"{path}: {len(rows)} rows instead of {table.rows}. {_AGAIN}")
    if problem := next(_problems(table, columns, rows), None):
        return TableStatus(table.key, "damaged", f"{path}: {problem}. {_AGAIN}")
    return TableStatus(table.key, "ok", f"{len(rows)} rows")


def _state_of_count(table: TableSpec, rows: int) -> str:
    """Return ``short`` or ``long``, or an empty text if the number of rows is the official one."""
    if rows == 0 or (table.rows is not None and rows < table.rows):
        return "short"
    return "long" if table.rows is not None and rows > table.rows else ""


def _problems(table: TableSpec, columns: list[str], rows: list[tuple[str, list[str]]]) -> Iterator[str]:
    at = {name: columns.index(name) for name in columns}
    if table.labels:
        found = Counter(cells[at["label"]] for _, cells in rows)
        unknown = sorted(set(found) - set(table.labels))
        if unknown:
            yield f"labels {', '.join(map(repr, unknown[:5]))}; wanted {', '.join(table.labels)}"
        for label, official in table.labels.items():
            if official not in (None, found[label]):
                yield f"{found[label]} rows of label {label} instead of {official}"
    if table.scores:
        for where, cells in rows:
            read_number(where, "score", cells[at["score"]], *table.scores)
    texts = [at[name] for name in TEXTS if name in at]
    yield from _odd_texts(table, texts, rows)


def _odd_texts(table: TableSpec, texts: list[int], rows: list[tuple[str, list[str]]]) -> Iterator[str]:
    empty = [where for where, cells in rows if not all(cells[column].strip() for column in texts)]
    if table.empty is not None and len(empty) != table.empty:
        yield f"{len(empty)} rows with an empty text, officially {table.empty}" + (
            f"; the first is line {empty[0].rpartition(':')[2]}" if empty else ""
        )
    if table.distinct:
        seen = Counter(cells[texts[0]] for _, cells in rows)
        twice = [text for text, count in seen.items() if count > 1]
        if twice:
            yield f"{len(twice)} sentences occur more than once, officially none; the first is {twice[0][:60]!r}"
        garbled = [text for text in seen if _garbled(text)]
        if garbled:
            yield f"{len(garbled)} sentences are garbled; the first is {garbled[0][:60]!r}"


def _garbled(text: str) -> bool:
    """Return whether a text has control characters, replacement characters, or UTF-8 read as Windows-1252 (``Ã©``)."""
    if not text.isprintable() or _NO_WORDS in text:
        return True
    try:
        return text.encode("cp1252").decode("utf-8") != text
    except UnicodeError:
        return False


def _check_vectors(table: TableSpec, path: Path) -> TableStatus:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as stored:
            shape = stored.get_slice(table.columns[0]).get_shape()
    except SafetensorError as error:
        return TableStatus(table.key, "damaged", f"{path}: {error}. {_AGAIN}")
    if state := _state_of_count(table, shape[0]):
        return TableStatus(table.key, state, f"{path}: {shape[0]} vectors instead of {table.rows}. {_AGAIN}")
    return TableStatus(table.key, "ok", f"{shape[0]} vectors, {shape[1]} wide")
