"""The STS test sets under ``data_root``: which files make a task, and which tasks make a suite."""

import difflib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contracts import InputError, PairTask
from evaluation.tsv import read_number, read_rows, read_text

log = logging.getLogger(__name__)

SENTEVAL = "@senteval"  # ends the name of a task whose texts are tokenised as SentEval feeds them to an encoder


class Layout(NamedTuple):
    """Where one task lies under ``data_root``, and what its scores may be."""

    files: tuple[str, ...]  # read one behind the other
    low: float
    high: float
    has_subsets: bool

    def paths(self, root: Path, senteval: bool) -> list[Path]:
        ending = ".senteval.tsv" if senteval else ".tsv"
        return [root / f"{file}{ending}" for file in self.files]


YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
LAYOUTS = {
    **{year: Layout((f"{year.upper()}/test",), 0, 5, has_subsets=True) for year in YEARS},
    "stsb-dev": Layout(("STSBenchmark/dev",), 0, 5, has_subsets=False),
    "stsb": Layout(("STSBenchmark/test",), 0, 5, has_subsets=False),
    "sickr-dev": Layout(("SICK/dev",), 1, 5, has_subsets=False),
    "sickr": Layout(("SICK/test",), 1, 5, has_subsets=False),
    "sickr-all": Layout(("SICK/train", "SICK/dev", "SICK/test"), 1, 5, has_subsets=False),
}
_RAW = (*YEARS, "stsb-dev", "stsb", "sickr")
SUITES = {"sts": (*_RAW, *(name + SENTEVAL for name in _RAW)), "sts-raw": _RAW}


def load_sts(data_root: str | Path, suite: str | Sequence[str] = "sts") -> list[PairTask]:
    """Reads the tasks of ``suite``: ``sts``, ``sts-raw``, or task names, as a list or separated by commas.

    A task of a suite that is not there is left out with a logged line; one asked for by its own name is an error.
    """
    root = Path(data_root)
    names = [name.strip() for name in (suite.split(",") if isinstance(suite, str) else suite)]
    tasks, absent = [], []
    for name, by_name in _expand(names).items():
        missing = [path for path in _paths(root, name) if not path.is_file()]
        if not missing:
            tasks.append(_read(root, name))
        elif by_name:
            raise InputError(f"task {name}: {missing[0]} is not there; evaluation.data_root must contain it.")
        elif not name.endswith(SENTEVAL):  # a second protocol, used where it is there
            absent.append(name)
    if not tasks:
        raise InputError(
            f"evaluation.data_root={root}: none of the tasks of {', '.join(names) or 'an empty suite'} is there; "
            "wanted a folder with STS12/test.tsv ... STS16/test.tsv, STSBenchmark/{dev,test}.tsv, "
            "SICK/{train,dev,test}.tsv (and test.senteval.tsv beside them). "
            "Give its path, or evaluation.data_root=null to go without."
        )
    if absent:
        log.info("not in %s and left out: %s", root, ", ".join(absent))
    return tasks


def _expand(names: Sequence[str]) -> dict[str, bool]:
    """Task name -> whether it was asked for by its own name; in order, each once."""
    wanted: dict[str, bool] = {}
    for name in names:
        if name in SUITES:
            for member in SUITES[name]:
                wanted.setdefault(member, False)
        elif name.removesuffix(SENTEVAL) in LAYOUTS:
            wanted[name] = True
        else:
            known = [*SUITES, *LAYOUTS]
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            raise InputError(
                f"evaluation.suite: no suite or task is named {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else ".")
                + f" There are {', '.join(known)}, and NAME{SENTEVAL} for each task."
            )
    return wanted


def _paths(root: Path, name: str) -> list[Path]:
    return LAYOUTS[name.removesuffix(SENTEVAL)].paths(root, senteval=name.endswith(SENTEVAL))


def _read(root: Path, name: str) -> PairTask:
    layout = LAYOUTS[name.removesuffix(SENTEVAL)]
    columns = ["sentence1", "sentence2", "score", *(["subset"] if layout.has_subsets else [])]
    task = PairTask(name, [], [], np.empty(0), [])
    gold = []
    for path in _paths(root, name):
        for where, (left, right, score, *subset) in read_rows(path, columns):
            task.left.append(read_text(where, "sentence1", left))
            task.right.append(read_text(where, "sentence2", right))
            gold.append(read_number(where, "score", score, layout.low, layout.high))
            task.subsets.append(read_text(where, "subset", subset[0]) if subset else name)
    if not gold:
        raise InputError(f"task {name}: {_paths(root, name)[0]} has a header but no rows; wanted sentence pairs.")
    return task._replace(gold=np.array(gold))
