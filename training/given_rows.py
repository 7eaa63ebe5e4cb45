"""Rows given in memory: accepted types and their checks."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from contracts import InputError

WANTED = "texts, tuples of two or more texts, or (text, text, score from 0 to 1)"
NAMES = {  # data= -> columns of its files
    "sentences": ("text",),
    "text": ("text",),
    "qa": ("question", "answer"),
    "triplets": ("anchor", "positive"),
    "dino": ("sentence1", "sentence2", "score"),
    "nli": ("premise", "hypothesis", "label"),
}
MODELS = {"sentences": "simcse", "triplets": "simcse", "dino": "sroberta"}  # of rows that nobody names
LABELS = ("score", "label")
NEGATIVE = re.compile(r"neg|contradict|distract|wrong", re.IGNORECASE)  # what the name of a column of such texts has

log = logging.getLogger("train")


class Shape(NamedTuple):
    """How many texts a row has, and whether a number stands behind them."""

    texts: int
    has_score: bool


def keys_of_rows(
    rows: Iterable[Any], said: Mapping[str, Any], keep: Callable[[Iterator[dict[str, Any]]], Path]
) -> tuple[dict[str, str], dict[str, Any]]:
    """The choices and the keys of a run that trains on them; ``said`` are those given, ``keep`` writes a file.

    Raises:
        InputError: they are no rows, or not alike.
    """
    if isinstance(rows, str | Path):
        raise InputError(f"rows={rows}: wanted rows; a file is given by its path: train(data=NAME, data__path=...).")
    if isinstance(rows, Mapping):
        raise InputError(f"rows: wanted the rows of one split, got a mapping of {', '.join(map(str, rows))}.")
    if hasattr(rows, "iterrows"):
        raise InputError('rows: a data frame is given by its rows: train(frame.to_dict("records")).')
    if not hasattr(rows, "__iter__") and not hasattr(rows, "__getitem__"):
        raise InputError(f"rows={rows!r:.60}: wanted {WANTED}, several of them.")
    places = iter(rows)
    first = next(places, None)
    if first is None:
        raise InputError("rows: there are none. Wanted at least one batch of them.")
    rows, kind = itertools.chain([first], places), said.get("data", "")
    if not kind or not isinstance(first, Mapping):  # else the reader knows its columns
        said_columns = _names_said(said.get("data.columns"))
        chosen = said_columns if isinstance(first, Mapping) else []
        if chosen:
            rows = (_chosen(row, place, chosen) for place, row in enumerate(rows))
            first = _chosen(first, 0, chosen)
        shape = _shape(first, 0)
        kind = kind or ("dino" if shape.has_score else "sentences" if shape.texts == 1 else "triplets")
        if not chosen:  # else the reader is told which column is which
            names = _names(kind, shape)
            if isinstance(first, Mapping):
                _say_columns(dict(zip(names, map(str, first), strict=True)))
            rows = _columns(rows, shape, names)
    choices, keys = dict[str, str](), {"data.path": str(keep(_mappings(rows)))}
    if "data" not in said and "experiment" not in said:
        choices["data"] = kind
        if kind == "dino":
            keys["data.postprocess"] = "off"
        if "model" not in said:
            choices["model"] = MODELS[kind]
    return choices, keys


def _names_said(columns: Any) -> list[Any]:
    try:
        found = (yaml.safe_load(columns) if isinstance(columns, str) else columns) or []
    except yaml.YAMLError:
        found = columns
    if not isinstance(found, list):
        raise InputError(f"data.columns={columns}: wanted a list of names, such as ['question', 'answer'].")
    return found


def _names(kind: str, shape: Shape) -> Sequence[str]:
    names = NAMES.get(kind)
    if names is None:
        raise InputError(f"data={kind} takes no rows without the names of columns. Wanted one of {', '.join(NAMES)}.")
    more = shape.texts - 2
    if kind == "triplets" and more > 0 and not shape.has_score:
        return (*names, "negative") if more == 1 else (*names, *(f"negative_{place + 1}" for place in range(more)))
    if len(names) != shape.texts + shape.has_score:
        raise InputError(f"data={kind}: wanted rows of {', '.join(names)}; the first has {_described(shape)}.")
    return names


def _say_columns(meant: Mapping[str, str]) -> None:
    """``anchor=question, positive=answer``: columns are taken in order, whatever they are called.

    Raises:
        InputError: what would be a negative is not called one.
    """
    for place, own in meant.items():
        if place.startswith("negative") and not NEGATIVE.search(own):
            raise InputError(
                f"rows: the column {own} would be trained on as a {place.partition('_')[0]}, texts that do not belong "
                f"to the {next(iter(meant.values()))} of their row. If they are such, call it negative; else say which "
                f"columns are meant, in this order: data__columns={list(meant.values())[:2]}."
            )
    log.info("rows: %s", ", ".join(f"{place}={own}" for place, own in meant.items()))


def _chosen(row: Any, place: int, columns: Sequence[str]) -> dict[str, Any]:
    """These columns, and the number where there is one."""
    if not isinstance(row, Mapping) or not set(columns) <= row.keys():
        found = ", ".join(map(str, row)) if isinstance(row, Mapping) else f"{row!r:.60}"
        raise InputError(f"rows[{place}]: wanted the columns {', '.join(columns)}, got {found}.")
    return {name: row[name] for name in [*columns, *(label for label in LABELS if label in row)]}


def _columns(rows: Iterable[Any], shape: Shape, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    columns: list[Any] = []
    for place, row in enumerate(rows):
        if isinstance(row, Mapping):
            columns = columns or list(row)
            if row.keys() != set(columns):
                raise InputError(
                    f"rows[{place}] has the columns {', '.join(map(str, row))}; wanted {', '.join(map(str, columns))}, "
                    "as the first has."
                )
            row = {name: row[name] for name in columns}  # in whatever order it has them
        if (found := _shape(row, place)) != shape:
            raise InputError(f"rows[{place}] has {_described(found)}; wanted {_described(shape)}, as the first has.")
        values = [float(one) if isinstance(one, Real) else one for one in _cells(row)]
        yield dict(zip(names, values, strict=True))


def _mappings(rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"rows[{place}] is {row!r:.60}; wanted a mapping of columns, as the first is.")
        yield {str(name): value.item() if hasattr(value, "item") else value for name, value in row.items()}


def _cells(row: Any) -> Sequence[Any]:
    return [row] if isinstance(row, str) else list(row.values()) if isinstance(row, Mapping) else list(row)


def _shape(row: Any, place: int) -> Shape:
    fits = isinstance(row, str | Mapping | Sequence) and not isinstance(row, bytes)
    cells = _cells(row) if fits else []
    texts = list(itertools.takewhile(lambda cell: isinstance(cell, str), cells))
    rest = cells[len(texts) :]
    if not texts or rest not in ([], [*filter(_is_number, rest)][:1]) or (rest and len(texts) != 2):
        names = [name for name, cell in row.items() if isinstance(cell, str)][:2] if isinstance(row, Mapping) else []
        named = f" Of more columns data__columns={names} names those that are meant." if names else ""
        raise InputError(f"rows[{place}] is {row!r:.80}; wanted {WANTED}, or mappings of columns to these.{named}")
    return Shape(len(texts), bool(rest))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _described(shape: Shape) -> str:
    texts = "1 text" if shape.texts == 1 else f"{shape.texts} texts"
    return f"{texts} and a number" if shape.has_score else texts
