"""Access to nested columns: the name ``answers.text.0`` refers to a value inside the column ``answers``."""

from collections.abc import Sequence
from typing import Any

MISSING = object()


def top_level(columns: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the top-level columns that must be read for the given columns: for ``answers.text``, this is ``answers``.

    Return no names, which means all columns, if the first name is missing.
    """
    wanted = {one if one in there else one.partition(".")[0] for one in columns}
    first = columns[0] if columns else ""
    return [name for name in there if name in wanted] if {first, first.partition(".")[0]} & set(there) else []


def value_in(values: Any, name: str) -> Any:
    """Return the value ``name`` of a row, or MISSING if there is none. The value may be nested, or in a column whose
    name contains dots.
    """
    if isinstance(values, dict) and name in values:
        return values[name]
    first, dot, rest = name.partition(".")
    inside: Any = MISSING
    if isinstance(values, list) and first.isdecimal() and int(first) < len(values):
        inside = values[int(first)]
    elif isinstance(values, dict) and dot:
        inside = values.get(first, MISSING)
    return value_in(inside, rest) if dot else inside
