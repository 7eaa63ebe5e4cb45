"""The ten probing tasks of SentEval's repository: one file each, with its split in every line."""

from functools import partial

from evaluation.acquire.archives import BadArchive, Members
from evaluation.acquire.origin import Alternative, Origin, github
from evaluation.acquire.sts_sets import cells
from evaluation.acquire.tables import Rows, Table
from evaluation.tasks.labelled import PROBING as TASKS
from evaluation.tasks.labelled import PROBING_ROWS as ROWS
from evaluation.tasks.labelled import PROBING_SPLITS as SPLITS


def _rows(name: str, members: Members) -> Rows:
    for row in cells(members.lines(name), 3, name):
        if row[0] not in SPLITS:
            raise BadArchive(f"{name}: a line begins with {row[0]!r}, wanted tr, va or te")
        yield row[0], row[1], row[-1]


def _tables() -> dict[str, Table]:
    return {file: Table(f"PROBING/{task}", ("split", "label", "sentence"), ROWS) for task, file in TASKS.items()}


def _places(repository: str, commit: str) -> tuple[Alternative, ...]:
    """One for each file, so that a task does not wait for the others."""
    return tuple(
        Alternative(
            f"GitHub {repository}",
            (github(repository, commit, f"data/probing/{file}.txt", f"probing/{file}.txt"),),
            {table.name: partial(_rows, f"{file}.txt")},
        )
        for file, table in _tables().items()
    )


ORIGINS = (
    Origin(
        "PROBING",
        "not stated (Conneau et al. 2018; sentences of the Toronto Book Corpus)",
        tuple(_tables().values()),
        _places("facebookresearch/SentEval", "main"),
    ),
)
