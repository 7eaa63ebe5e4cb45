"""Convert rows in memory to a data file: accepted types of rows, selection of columns, and checks."""

import contextlib
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.row_schemas import (
    NLI,
    PAIRS,
    QA,
    SENTENCES,
    TRIPLETS,
    numbered_columns,
    score,
)
from contrastive_encoders.io.cached_rows import cache_rows
from contrastive_encoders.io.column_names import choose_columns
from contrastive_encoders.training.run_config import DEFAULT_MODELS

ACCEPTED = "texts, tuples of two or more texts, (text, text, score from 0 to 1), or mappings of columns to these"
NAMES = {  # data= -> columns of its files
    "sentences": ("text",),
    "text": ("text",),
    "qa": ("question", "answer"),
    "triplets": ("anchor", "positive"),
    "dino": ("sentence1", "sentence2", "score"),
    "nli": ("premise", "hypothesis", "label"),
}
LABELS = ("score", "label")
KINDS = {
    "triplets": TRIPLETS,
    "qa": QA,
    "dino": PAIRS,
    "nli": NLI,
    "sentences": SENTENCES,
}  # data= -> columns of its rows
MAX_LISTED = 3  # rows that a warning names
SETTING = re.compile(
    r"'?\bdata\.(\w+)=(\[[^\]]*\]|[\w+-]+(?:\.[\w+-]+)*)'?"
)  # an override in a message, perhaps in quotes
NEGATIVE = re.compile(r"neg|contradict|distract|wrong", re.IGNORECASE)  # pattern of the names of columns with negatives

log = logging.getLogger(__name__)


class Shape(NamedTuple):
    """Number of texts in a row, and whether a score follows the texts."""

    texts: int
    has_score: bool


class CachedRows(NamedTuple):
    """The file to which rows in memory were written, and the sorted indices of the rows that are not in the file."""

    path: Path
    skipped: list[int]

    def row_index(self, line: int) -> int:
        """Return the index in memory of the row that is in line ``line`` of the file. Lines are counted from 1."""
        index = line - 1
        for empty in self.skipped:
            if empty > index:
                break
            index += 1
        return index

    def error(self, error: InputError) -> InputError:
        """Return a copy of an error about the file in which ``rows[INDEX]`` replaces the file name and the line
        number.
        """
        if str(self.path) not in str(error):
            return error
        texts = {name: self._in_memory(getattr(error, name)) for name in ("location", "value", "expected", "hint")}
        if error.key == "data.path":
            texts |= {"key": "rows", "value": None}
        return InputError(self._in_memory(str(error)), **{"key": error.key, **texts})

    def _in_memory(self, text: Any) -> Any:
        if not isinstance(text, str | Path):
            return text
        path = re.escape(str(self.path))
        lines = re.sub(rf"{path}:(\d+)", lambda found: f"rows[{self.row_index(int(found[1]))}]", str(text))
        return SETTING.sub(_python_argument, re.sub(rf"(data\.path=)?{path}", "rows", lines))


def _python_argument(setting: re.Match[str]) -> str:
    """Return an override in a message as an argument of `train`, such as ``data__on_error="skip"``."""
    value = setting[2]
    with contextlib.suppress(yaml.YAMLError):  # a name that the shell needs in several quotes
        value = value if value == "[...]" else json.dumps(yaml.safe_load(value), ensure_ascii=False)
    return f"data__{setting[1]}={value}"


def overrides_for_rows(
    rows: Iterable[Any], overrides: Mapping[str, Any], folder: Path
) -> tuple[dict[str, str], dict[str, Any], CachedRows]:
    """Write rows in memory to a file in ``folder``, and return the settings with which a run trains on this file.

    Returns:
        The group choices and the keys that a run requires to train on these rows, in addition to ``overrides``, and the
        file.

    Raises:
        InputError: the argument is not a collection of rows, or the rows do not all have the same columns and types.
    """
    rows = _rows_in(rows)
    columns = _column_names(overrides.get("data.columns"))
    kind = overrides.get("data", "")
    complete = _Complete(rows, kind, columns, fail=overrides.get("data.on_error") == "fail")
    numbered = iter(complete)
    first = next(numbered, None)
    if first is None:
        found = f"all {len(complete.empty):,} rows have an empty cell" if complete.empty else "there are no rows"
        raise InputError(key="rows", expected=f"enough complete rows for at least one batch, but {found}")
    numbered = itertools.chain([first], numbered)
    index, row = first
    if _has_lists(row):
        kind = kind or "triplets"  # one of several positives, and negatives: the reader knows the columns
    elif not kind or not isinstance(row, Mapping):  # otherwise the reader knows the columns
        chosen = complete.columns if isinstance(row, Mapping) else []
        if chosen and (columns or chosen != list(row)):  # known names may be in another order
            numbered = ((index, _chosen(row, index, chosen)) for index, row in numbered)
            row = _chosen(row, index, chosen)
        numbered = ((index, _with_number(row)) for index, row in numbered)
        row = _with_number(row)
        shape = _shape(row, index)
        kind = kind or ("dino" if shape.has_score else "sentences" if shape.texts == 1 else "triplets")
        if not columns:  # otherwise the columns are passed to the reader
            names = _names(kind, shape)
            if isinstance(row, Mapping):
                _log_columns(dict(zip(names, map(str, row), strict=True)))
            numbered = _columns(numbered, shape, names)
    path = cache_rows(_mappings(numbered), folder)
    choices, keys = dict[str, str](), {"data.path": str(path)}
    complete.warn()
    cached = CachedRows(path, list(complete.empty))
    if "experiment" in overrides:
        return choices, keys, cached
    if "data" not in overrides:
        choices["data"] = kind
        if kind == "dino":
            keys["data.postprocess"] = "off"
    if "model" not in overrides and kind in DEFAULT_MODELS:
        choices["model"] = DEFAULT_MODELS[kind]
    return choices, keys, cached


def _rows_in(rows: Any) -> Iterable[Any]:
    """Return an iterable over the rows, whatever their type. Rows of a pandas DataFrame are converted to mappings.

    Raises:
        InputError: this is not a collection of rows.
    """
    if isinstance(rows, str | Path):
        raise InputError(
            key="rows",
            value=rows,
            expected=ACCEPTED,
            hint='To train on a file, pass its path: train(model="pairs", data="qa", data__path=PATH).',
        )
    if isinstance(rows, Mapping):
        splits = ", ".join(map(str, rows))
        expected = f"the rows of one split, but this is a mapping of {splits}"
        raise InputError(key="rows", expected=expected, hint="Pass rows[SPLIT].")
    if hasattr(rows, "iterrows"):
        if not rows.columns.is_unique:
            raise InputError(key="rows", value=list(rows.columns), expected="a DataFrame with unique column names")
        return ({str(name): value for name, value in row.items()} for row in rows.to_dict("records"))
    if not hasattr(rows, "__iter__") and not hasattr(rows, "__getitem__"):
        raise InputError(key="rows", value=repr(rows), expected=ACCEPTED)
    return rows


class _Complete:
    """Iterable of (index, row) for the rows that have no empty cell in the columns used for training. The other rows
    are counted.

    A cell is empty if it is ``None``, NaN, pandas' NA or NaT, or a string of whitespace.
    """

    def __init__(self, rows: Iterable[Any], kind: str, columns: list[Any], fail: bool) -> None:
        self.rows, self.kind, self.texts, self.fail = rows, kind, columns, fail
        self.columns: list[Any] = []  # of the texts and the label; known after the first mapping
        self.number = 0
        self.empty: dict[int, str] = {}  # index of a row -> its first empty column

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        for index, row in enumerate(self.rows):
            self.number += 1
            name = next((name for name, value in self._cells(row) if _is_empty(value)), None)
            if name is None:
                yield index, row
                continue
            if self.fail:
                raise InputError(
                    location=f"rows[{index}]",
                    key=name or None,
                    value="an empty cell",
                    expected="a text",
                    hint=f'{_columns_hint(row)}Set data__on_error="skip" to skip such rows.',
                )
            self.empty[index] = name

    def warn(self) -> None:
        if self.empty:
            places = [f"rows[{index}]{f', {name}' if name else ''}" for index, name in self.empty.items()]
            listed = "; ".join(places[:MAX_LISTED]) + ("; ..." if len(places) > MAX_LISTED else "")
            log.warning(
                "rows: %s of %s have an empty cell and are skipped (%s).",
                *(f"{len(self.empty):,}", f"{self.number:,}", listed),
            )

    def _cells(self, row: Any) -> list[tuple[str, Any]]:
        """Return (column name, value) for each cell of a row that must not be empty."""
        if isinstance(row, Mapping):
            if not self.columns:
                self.columns = _columns_used(row, self.kind, self.texts)
            return [] if _has_lists(row) else [(str(name), row[name]) for name in self.columns if name in row]
        several = isinstance(row, Sequence) and not isinstance(row, str | bytes)
        return [("", cell) for cell in (row if several else [row])]


def _columns_used(row: Mapping[Any, Any], kind: str, texts: Sequence[Any]) -> list[Any]:
    """Return the names of the columns that contain the texts and the label.

    These are ``texts`` and the label columns if ``texts`` is given; otherwise the columns that files of this kind
    contain, or those of a known pair or triplet; otherwise all columns.
    """
    labels = [label for label in LABELS if label in row]
    if texts:
        return [*texts, *labels]
    for one in [KINDS[kind]] if kind in KINDS else [TRIPLETS, QA, PAIRS] if not kind else []:
        if numbered := numbered_columns(one, list(row)):
            return list(numbered)
        names = choose_columns(list(row), one.columns)
        if names and (one.label is None or labels):
            return [*names, *(labels if one.label else [])]
    return [] if kind else list(row)


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)
    )


def _has_lists(row: Any) -> bool:
    return isinstance(row, Mapping) and any(_is_list(value) for value in row.values())


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or type(value).__name__ == "ndarray"


def _columns_hint(row: Any) -> str:
    return f"Columns: {', '.join(map(str, row))}. " if isinstance(row, Mapping) else ""


def _column_names(columns: Any) -> list[Any]:
    try:
        found = (yaml.safe_load(columns) if isinstance(columns, str) else columns) or []
    except yaml.YAMLError:
        found = columns
    if not isinstance(found, list):
        raise InputError(key="data.columns", value=columns, expected="a list of names, such as ['question', 'answer']")
    return found


def _names(kind: str, shape: Shape) -> Sequence[str]:
    names = NAMES.get(kind)
    if names is None:
        expected = f"one of {', '.join(NAMES)} for rows without column names"
        raise InputError(key="data", value=kind, expected=expected)
    more = shape.texts - 2
    if kind == "triplets" and more > 0 and not shape.has_score:
        return (*names, "negative") if more == 1 else (*names, *(f"negative_{place + 1}" for place in range(more)))
    if len(names) != shape.texts + shape.has_score:
        raise InputError(
            location="rows[0]",
            value=_described(shape),
            expected=f"cells for the columns {', '.join(names)} of data={kind}",
        )
    return names


def _log_columns(columns: Mapping[str, str]) -> None:
    """Log the role of each column, because the roles are assigned by the order of the columns, not by their names:
    ``anchor=question, positive=answer``.

    Raises:
        InputError: a column that would be used as negatives has a name that does not suggest negatives.
    """
    for place, name in columns.items():
        if place.startswith("negative") and not NEGATIVE.search(name):
            raise InputError(
                key="rows",
                expected=f"the word negative in the column name {name}, since columns are assigned by order, and the "
                f"texts of this column would be used as negatives for the column {next(iter(columns.values()))}",
                hint="If these texts are negatives, rename the column to negative. Otherwise set "
                "data__columns=[...] to the names of the two columns of the texts.",
            )
    log.info("rows: %s", ", ".join(f"{place}={name}" for place, name in columns.items()))


def _chosen(row: Any, index: int, columns: Sequence[str]) -> dict[str, Any]:
    """Return the cells of a row in the columns ``columns``, as a mapping of column names to cells."""
    missing = [name for name in columns if not isinstance(row, Mapping) or name not in row]
    if missing:
        raise InputError(
            location=f"rows[{index}]",
            key=str(missing[0]),
            value="no such column" if isinstance(row, Mapping) else repr(row),
            expected="a text",
            hint=_columns_hint(row).strip() or None,
        )
    return {name: row[name] for name in columns}


def _columns(
    numbered: Iterable[tuple[int, Any]], shape: Shape, names: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    columns: list[Any] = []
    for index, row in numbered:
        if isinstance(row, Mapping):
            columns = columns or list(row)
            if row.keys() != set(columns):
                raise InputError(
                    location=f"rows[{index}]",
                    value=f"the columns {', '.join(map(str, row))}",
                    expected=f"the columns of the first row ({', '.join(map(str, columns))})",
                )
            row = {name: row[name] for name in columns}  # in any order
        if (found := _shape(row, index)) != shape:
            raise InputError(
                location=f"rows[{index}]",
                value=_described(found),
                expected=f"{_described(shape)}, as in the first row",
            )
        values = [float(one) if isinstance(one, Real) else one for one in _cells(row)]
        yield index, dict(zip(names, values, strict=True))


def _mappings(numbered: Iterable[tuple[int, Any]]) -> Iterator[dict[str, Any]]:
    for index, row in numbered:
        if not isinstance(row, Mapping):
            raise InputError(
                location=f"rows[{index}]",
                value=repr(row),
                expected="a mapping of column names to cells, like the first row",
            )
        yield {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Convert a cell to a type that JSON supports. Other types, such as dates, are converted to strings."""
    if _is_list(value):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, str):
        return str(value)
    if _is_empty(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, bool | int | float) else str(value)


def _cells(row: Any) -> Sequence[Any]:
    return [row] if isinstance(row, str) else list(row.values()) if isinstance(row, Mapping) else list(row)


def _with_number(row: Any) -> Any:
    """Return the row, with its score converted to a number if the score is a string."""
    if not isinstance(row, Mapping):
        return row
    found = dict(row)
    for name in LABELS:
        if isinstance(value := row.get(name), str):
            with contextlib.suppress(ValueError):
                found[name] = score(value)
    return found


def _shape(row: Any, index: int) -> Shape:
    fits = isinstance(row, str | Mapping | Sequence) and not isinstance(row, bytes)
    cells = _cells(row) if fits else []
    texts = list(itertools.takewhile(lambda cell: isinstance(cell, str), cells))
    rest = cells[len(texts) :]
    if not texts or rest not in ([], [one for one in rest if isinstance(one, Real)][:1]) or (rest and len(texts) != 2):
        raise _invalid_row(row, index)
    return Shape(len(texts), bool(rest))


def _invalid_row(row: Any, index: int) -> InputError:
    """Return the error for a row of an unsupported type. For a mapping, it names the first cell that is not a
    string.
    """
    if not isinstance(row, Mapping):
        return InputError(location=f"rows[{index}]", value=repr(row), expected=ACCEPTED)
    name, value = next((name, value) for name, value in row.items() if not isinstance(value, str))
    texts = [str(name) for name, cell in row.items() if isinstance(cell, str)]
    columns = "Convert these cells to strings."
    if len(texts) > 1:  # of more than two, the names do not tell which columns form a pair
        columns = f"Set the columns of the texts: data__columns={texts if len(texts) == 2 else '[...]'}."
    return InputError(
        location=f"rows[{index}]",
        key=str(name),
        value=repr(value),
        expected="a text",
        hint=f"{_columns_hint(row)}{columns}".strip(),
    )


def _described(shape: Shape) -> str:
    texts = "1 text" if shape.texts == 1 else f"{shape.texts} texts"
    return f"{texts} and a number" if shape.has_score else texts
