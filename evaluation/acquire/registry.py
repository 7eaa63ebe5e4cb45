"""Which sets there are, and which of them a task needs."""

import difflib
from collections.abc import Sequence

from contracts import InputError
from evaluation.acquire import caption_sets, domain_sets, probing_sets, senteval_sets, sts_sets
from evaluation.acquire.origin import Origin
from evaluation.acquire.tables import Table

_FAMILIES = (sts_sets, senteval_sets, caption_sets, probing_sets, domain_sets)
ORIGINS: dict[str, Origin] = {origin.name: origin for family in _FAMILIES for origin in family.ORIGINS}
TABLES: dict[str, Table] = {table.key: table for origin in ORIGINS.values() for table in origin.tables}


def chosen(names: Sequence[str] | None) -> list[Origin]:
    """The sets of suites (``sts``), tasks (``mr``, ``stsb-dev@senteval``) or sets (``MR``); all without ``names``.

    InputError: an unknown name.
    """
    if names is None:
        return list(ORIGINS.values())
    return [ORIGINS[name] for name in dict.fromkeys(found for name in _single(names) for found in _sets(name))]


def needed(names: Sequence[str]) -> set[str]:
    """The tables that tasks and sets need which are named themselves, not by a suite."""
    tables = {table for name in _single(names) for table in tables_of(name)}
    sets = [ORIGINS[name] for name in _single(names) if name in ORIGINS]
    return tables | {table.key for origin in sets for table in origin.tables if not table.change}


def tables_of(task: str) -> list[str]:
    """The tables that a task of the catalogue is read from; none for a name that is no task."""
    from evaluation.catalogue import ENTRIES  # the tasks import what scores them, and that is slow

    plain, _, form = task.partition("@")
    return [f"{name}.{form}" if form else name for name in ENTRIES[plain].rows] if plain in ENTRIES else []


def _single(names: Sequence[str]) -> list[str]:
    return [one.strip() for name in names for one in name.split(",")]


def _sets(name: str) -> list[str]:
    from evaluation.catalogue import ENTRIES, SUITES

    if name in ORIGINS:
        return [name]
    plain = name.partition("@")[0]
    tasks = SUITES.get(plain, (plain,))
    if not set(tasks) <= set(ENTRIES):
        near = difflib.get_close_matches(name, [*ORIGINS, *SUITES, *ENTRIES], n=1, cutoff=0.5)
        raise InputError(
            f"suite: no suite, task or set is named {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else ".")
            + f" Suites: {', '.join(SUITES)}. Sets: {', '.join(ORIGINS)}."
        )
    return [table.partition("/")[0] for task in tasks for table in ENTRIES[task].rows]
