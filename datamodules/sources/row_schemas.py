"""Row schemas for the training data of each objective: column names and labels."""

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.core.batches import RELATIONS
from contrastive_encoders.io import column_names

BOOLEANS: dict[object, float] = {"true": 1.0, "false": 0.0}  # scores in a .csv file
MAX_SCORE = 3.4e38  # the largest float32


class SkippedRow(NamedTuple):
    """A valid row that is dropped, and is counted under ``reason``."""

    reason: str


class LabelColumn(NamedTuple):
    """The label column of a row schema. ``read`` parses a label and raises a ValueError that names the expected
    values.
    """

    columns: tuple[str, ...]  # accepted column names
    read: Callable[[object], "float | tuple[float, ...] | SkippedRow"]
    several: bool = False  # one number for each text after the first
    rescaling: Callable[[Iterable[object]], str] | None = None  # returns advice about labels in another range


class RowSchema(NamedTuple):
    """Names of the columns that may contain the texts and the label of a row.

    ``columns`` contains sets of equivalent names; the first set that a file has is used.
    """

    name: str
    columns: tuple[tuple[str, ...], ...]
    label: LabelColumn | None = None
    drop_blank: bool = False  # drop rows with an empty text; otherwise they are errors
    numbered: tuple[str, ...] = ()  # the last name is the prefix of one or more texts: negative_1, negative_2, ...
    lists: tuple[tuple[str, ...], ...] = ()  # names of a text, a list of positives, and optionally a list of negatives


def score(value: object) -> float:
    """Parse a similarity from 0 to 1, which may be a number or a string. True is 1 and False is 0."""
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise ValueError('expected a number from 0 to 1, or a string with such a number ("0", "0.5", "1")')
    return number


def rescaling(values: Iterable[object]) -> str:
    """Return advice on mapping these scores to the range 0 to 1, or "" if they are already in that range or all
    equal.
    """
    numbers = [number for value in values if (number := _number(value)) is not None]
    if len(set(numbers)) < 2:
        return ""
    low, high = math.floor(min(numbers)), math.ceil(max(numbers))
    if low >= 0 and high <= 1:
        return ""
    shifted = f"(score {'-' if low > 0 else '+'} {abs(low)})" if low else "score"
    scale = "" if high - low == 1 else f" / {high - low}"
    return f"; the scores range from {low} to {high}: if this is their full range, replace each by {shifted}{scale}"


def _number(value: object) -> float | None:
    """Return a value as a finite number if it is one, or is a string that contains one, otherwise None."""
    text = value.strip().lower() if isinstance(value, str) else value
    if not isinstance(text, int | float | str):
        return None
    try:
        number = float(BOOLEANS.get(text, text))
    except (ValueError, OverflowError):  # OverflowError for an integer with hundreds of digits
        return None
    return number if math.isfinite(number) else None


def scores(value: object) -> tuple[float, ...]:
    """Parse a list of scores, which may be any finite numbers. Tables without list values contain them as JSON."""
    expected = "expected a list of numbers, [score of the positive, score of each negative]"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(expected) from None
    if not isinstance(value, list | tuple):
        raise ValueError(expected)
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int | float) or not abs(one) <= MAX_SCORE:  # also rejects NaN
            raise ValueError(f"{expected}, all finite")
    return tuple(map(float, value))


_RELATION_OF = {**{name: i for i, name in enumerate(RELATIONS)}, **{str(i): i for i in range(3)}}
_NO_GOLD = ("-1", "-", "")


def relation(value: object) -> float | SkippedRow:
    """Parse an NLI label, and return 0 for entailment, 1 for neutral, and 2 for contradiction.

    SNLI uses -1 and "-" for pairs without rater agreement.
    """
    text = value
    if isinstance(value, int | float) and value in (-1, 0, 1, 2) and not isinstance(value, bool):
        text = str(int(value))
    if isinstance(text, str):
        text = text.strip().lower()
        if text in _NO_GOLD:
            return SkippedRow("no gold label")
        if text in _RELATION_OF:
            return _RELATION_OF[text]
    raise ValueError(f"expected {', '.join(RELATIONS)}, or 0, 1, 2 in this order (-1 or - for no label)")


SENTENCES = RowSchema("sentences", column_names.TEXTS)
PAIRS = RowSchema(
    "pairs",
    column_names.PAIRS,
    LabelColumn(("label", "score"), score, rescaling=rescaling),
    drop_blank=True,  # the published generator writes texts of blanks into its files
)
TRIPLETS = RowSchema(
    "triplets",
    (*column_names.TRIPLETS, *column_names.POSITIVES),
    numbered=("anchor", "positive", "negative_"),
    lists=column_names.POSITIVE_LISTS,
)
SCORED_TRIPLETS = RowSchema(
    "scored_triplets",
    column_names.SCORED_TRIPLETS,
    LabelColumn(("scores", "score", "labels", "label"), scores, several=True),
    numbered=("anchor", "positive", "negative_"),
)
MINED = RowSchema("mined", column_names.PAIRS_TO_MINE)  # pairs for which hard negatives are mined
NLI = RowSchema("nli", column_names.INFERENCE_PAIRS, LabelColumn(("label", "gold_label"), relation))
QA = RowSchema("qa", column_names.QUESTIONS, lists=column_names.POSITIVE_LISTS)


def own_columns(columns: Sequence[str], kind: RowSchema, key: str) -> tuple[str, ...]:
    widths = sorted({len(names) for names in (*kind.columns, *kind.lists)})
    more = bool(kind.numbered) and len(columns) > widths[-1]
    if not (more or len(columns) in widths) or len(set(columns)) < len(columns):
        expected = f"{' or '.join(map(str, widths))} different names, for the columns {', '.join(kind.columns[0])}"
        if kind.numbered:
            expected += ", and more for the last one"
        elif widths == [1]:
            expected = f"one name, for the column {kind.columns[0][0]}"
        raise InputError(key=key, value=list(columns), expected=expected)
    return tuple(columns)


def numbered_columns(kind: RowSchema, present: Collection[str]) -> tuple[str, ...] | None:
    """Return the columns of a row, including ``NAME_1``, ``NAME_2``, and so on, if the schema allows numbered columns.

    Return None if the first one is missing.
    """
    if not kind.numbered:
        return None
    *first, stem = kind.numbered
    many = list(itertools.takewhile(present.__contains__, (f"{stem}{number}" for number in itertools.count(1))))
    return (*first, *many) if many and set(first) <= set(present) else None


def _shown(numbered: Sequence[str]) -> list[list[str]]:
    return [[*numbered[:-1], f"{numbered[-1]}1", f"{numbered[-1]}2, ..."]] if numbered else []


def describe_columns(kind: RowSchema) -> str:
    lists = [f"{', '.join(names)} (lists)" for names in kind.lists if len(names) > 2]
    sets = " or ".join([*(", ".join(names) for names in [*kind.columns, *_shown(kind.numbered)]), *lists])
    return sets + (f", with {' or '.join(kind.label.columns)}" if kind.label else "")
