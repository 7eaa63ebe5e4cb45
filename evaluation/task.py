"""What every task of evaluation is: texts that want vectors, and scores made of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from evaluation.embed import Pool
from evaluation.statistics import Estimate


class How(NamedTuple):
    """How a task is to be scored."""

    device: torch.device = torch.device("cpu")  # where classifiers are trained
    intervals: bool = True  # also 95 % intervals


class Task(Protocol):
    """A task holds its texts and gold values, and no vectors."""

    name: str  # task[-split][@senteval], the beginning of its scores' names

    def texts(self) -> Iterable[Sequence[str]]:
        """Every text that ``score`` will look up in the pool."""
        ...

    def score_names(self) -> list[str]:
        """The keys of ``score``, known without any vector."""
        ...

    def score(self, pool: Pool, how: How) -> dict[str, Estimate]:
        """``task[-split][@senteval]/protocol/metric`` -> estimate, in 0..100 (correlations -100..100).

        No collective inside: ranks score different tasks. The same vectors give the same scores on any rank.
        """
        ...


class Classifiers(NamedTuple):
    """Which of SentEval's parameter sets trains classifiers, and from which seed."""

    protocol: str = "default"  # default, fast or sklearn
    nhid: int = 0  # hidden units; 0: a linear classifier
    seed: int = 1111


class Entry(NamedTuple):
    """A task that can be read from ``data_root``."""

    rows: Mapping[str, int | None]  # table it needs ("MR/all", no ending) -> official number of rows where known
    read: Callable[[Path, str, Classifiers], Task]  # (data_root, task's full name, classifiers)
    senteval: bool = False  # "NAME@senteval" exists, in files that end in .senteval.tsv
    beside: tuple[str, ...] = ()  # files that are no tables
