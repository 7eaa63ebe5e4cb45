"""The STS sets under ``data_root``."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contracts import InputError, PairTask
from evaluation.sts import Similarity
from evaluation.task import Entry, Options
from evaluation.tsv import SENTEVAL, read_number, read_rows, read_text, table


class Layout(NamedTuple):
    """Which tables hold a set, and what its ratings may be."""

    rows: dict[str, int]  # table -> official rows; read one behind the other
    low: float
    high: float
    has_subsets: bool


YEARS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}
SICK = {"SICK/train": 4500, "SICK/dev": 500, "SICK/test": 4927}
LAYOUTS = {
    **{year: Layout({f"{year.upper()}/test": rows}, 0, 5, has_subsets=True) for year, rows in YEARS.items()},
    "stsb-dev": Layout({"STSBenchmark/dev": 1500}, 0, 5, has_subsets=False),
    "stsb": Layout({"STSBenchmark/test": 1379}, 0, 5, has_subsets=False),
    "sickr-dev": Layout({"SICK/dev": 500}, 1, 5, has_subsets=False),
    "sickr": Layout({"SICK/test": 4927}, 1, 5, has_subsets=False),
    "sickr-all": Layout(SICK, 1, 5, has_subsets=False),
}


def read_pairs(root: Path, name: str, layout: Layout) -> PairTask:
    """The rows of a layout's tables; ``name`` ends in ``@senteval`` for the other form of the text."""
    columns = ["sentence1", "sentence2", "score", *(["subset"] if layout.has_subsets else [])]
    task = PairTask(name, [], [], np.empty(0), [])
    gold = list[float]()
    for path in (table(root, one, senteval=name.endswith(SENTEVAL)) for one in layout.rows):
        before = len(gold)
        for where, (left, right, score, *subset) in read_rows(path, columns):
            task.left.append(read_text(where, "sentence1", left))
            task.right.append(read_text(where, "sentence2", right))
            gold.append(read_number(where, "score", score, layout.low, layout.high))
            task.subsets.append(read_text(where, "subset", subset[0]) if subset else name)
        if len(gold) == before:
            raise InputError(f"task {name}: {path} has a header but no rows; wanted sentence pairs. Fetch it again.")
    if len(set(gold)) < 2:
        raise InputError(
            f"task {name}: {path}: all {len(gold)} rows have the score {gold[0]:g}, and nothing correlates with a "
            "constant; wanted scores that differ. Fetch it again."
        )
    return task._replace(gold=np.array(gold))


def _read(layout: Layout, root: Path, name: str, options: Options) -> Similarity:
    return Similarity(read_pairs(root, name, layout))


ENTRIES = {name: Entry(layout.rows, partial(_read, layout), senteval=True) for name, layout in LAYOUTS.items()}
