"""Checks of evaluation tables and of custom tasks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.custom_tasks.resolve import CustomTaskEntry
from contrastive_encoders.evaluation.download.dataset_specs import TEXTS, DatasetSpec, TableSpec
from contrastive_encoders.evaluation.download.registry import DataStatus, TableStatus, required_tables, select_sets
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.suite import Suite
from contrastive_encoders.evaluation.tables import TableRow, read_table

_FETCH_HINT = "Delete the file and download it again."
_CHECKED_COLUMNS = ("label", "score", "subset", "split", "entailment")
_REPLACEMENT_CHARACTER = "\ufffd"  # replacement character of a decoder for unknown bytes


def check(data_root: Path, tasks: Sequence[str] | None = None) -> DataStatus:
    """Check the tables of the given suites, tasks, or data sets (None: all).

    The check passes if any table is present, if every present table is complete, and if no table is missing that is
    needed by a task or data set that was requested by name. Missing tables of a suite are allowed.

    Raises:
        InputError: a task is unknown, or ``data_root`` is not a folder.
    """
    if not data_root.is_dir():
        raise InputError(key="data_root", value=data_root, expected="a directory that exists")
    rows = [_check_table(data_root, origin, table) for origin in select_sets(tasks) for table in origin.tables]
    required = required_tables(tasks or ())
    bad = [
        row for row in rows if row.state not in ("ok", "missing") or (row.state == "missing" and row.table in required)
    ]
    return DataStatus(rows, ok=not bad and any(row.state == "ok" for row in rows))


def _check_table(root: Path, origin: DatasetSpec, table: TableSpec) -> TableStatus:
    path = table.path(root)
    if not path.is_file():
        return TableStatus(
            table.key, "missing", f"action=fetch suite={origin.name} downloads it from {origin.places[0].name}"
        )
    try:
        return _check_vectors(table, path) if table.format != "tsv" else _check_texts(table, path)
    except InputError as error:
        return TableStatus(table.key, "damaged", str(error))


def _check_texts(table: TableSpec, path: Path) -> TableStatus:
    columns = [name for name in table.columns if name in _CHECKED_COLUMNS or name in TEXTS]
    rows = list(read_table(path, columns))
    if state := _count_state(table, len(rows)):
        return TableStatus(table.key, state, f"{path}: {len(rows)} rows instead of {table.rows}. {_FETCH_HINT}")
    if problem := next(_problems(table, columns, rows), None):
        return TableStatus(table.key, "damaged", f"{path}: {problem}. {_FETCH_HINT}")
    return TableStatus(table.key, "ok", f"{len(rows)} rows")


def _count_state(table: TableSpec, rows: int) -> str:
    """Compare a table's number of rows with the official number: return "short", "long", or "" if they are equal."""
    if rows == 0 or (table.rows is not None and rows < table.rows):
        return "short"
    return "long" if table.rows is not None and rows > table.rows else ""


def _problems(table: TableSpec, columns: list[str], rows: list[TableRow]) -> Iterator[str]:
    if table.labels:
        counts = Counter(row.values["label"] for row in rows)
        unknown = sorted(set(counts) - set(table.labels))
        if unknown:
            yield f"labels {', '.join(map(repr, unknown[:5]))}; expected {', '.join(table.labels)}"
        for label, official in table.labels.items():
            if official not in (None, counts[label]):
                yield f"{counts[label]} rows of label {label} instead of {official}"
    if table.scores:
        for row in rows:
            row.number("score", *table.scores)
    yield from _text_problems(table, [name for name in TEXTS if name in columns], rows)


def _text_problems(table: TableSpec, texts: list[str], rows: list[TableRow]) -> Iterator[str]:
    empty = [row.where for row in rows if not all(row.values[name].strip() for name in texts)]
    if table.empty is not None and len(empty) != table.empty:
        yield f"{len(empty)} rows with an empty text, expected {table.empty}" + (
            f"; the first is line {empty[0].rpartition(':')[2]}" if empty else ""
        )
    if table.distinct:
        counts = Counter(row.values[texts[0]] for row in rows)
        repeated = [text for text, count in counts.items() if count > 1]
        if repeated:
            yield f"{len(repeated)} sentences occur more than once, expected none; the first is {repeated[0][:60]!r}"
        garbled = [text for text in counts if _garbled(text)]
        if garbled:
            yield f"{len(garbled)} sentences are garbled; the first is {garbled[0][:60]!r}"


def _garbled(text: str) -> bool:
    """Return whether a text contains control or replacement characters, or UTF-8 read as Windows-1252 (``Ã©``)."""
    if not text.isprintable() or _REPLACEMENT_CHARACTER in text:
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
        return TableStatus(table.key, "damaged", f"{path}: {error}. {_FETCH_HINT}")
    if state := _count_state(table, shape[0]):
        return TableStatus(table.key, state, f"{path}: {shape[0]} embeddings instead of {table.rows}. {_FETCH_HINT}")
    return TableStatus(table.key, "ok", f"{shape[0]} embeddings of width {shape[1]}")


def custom_task_report(own: Sequence[CustomTaskEntry], config: EvaluateConfig | None) -> DataStatus:
    """Report each custom task with its kind and files.

    If ``config`` is given, the files are read, and the report also contains the number of texts and the score names.
    """
    rows = list[TableStatus]()
    for one in own:
        files = ", ".join(map(str, one.keys.files()))
        try:
            rows.append(
                TableStatus(one.name, "ok" if config else "there", f"{one.kind} from {files}{_contents(one, config)}")
            )
        except InputError as error:
            rows.append(TableStatus(one.name, "damaged", str(error)))
    return DataStatus(rows, ok=all(row.state != "damaged" for row in rows))


def _contents(one: CustomTaskEntry, config: EvaluateConfig | None) -> str:
    if config is None:
        return ""
    suite = Suite(one.read(config))
    texts = {text for task in suite for side in task.texts() for text in side}
    return f"; {len(texts):,} texts; scores {', '.join(suite.score_names())}"
