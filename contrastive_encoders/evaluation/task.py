"""The interface of an evaluation task: texts to encode, and scores of their vectors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.statistics.bootstrap import Estimate

EMPTY = "."  # stands for a text that is empty: tokenizers differ in what they make of none


class ScoringOptions(NamedTuple):
    """The device and the outputs that a task is scored with."""

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

    def score(self, pool: EmbeddingPool, how: ScoringOptions) -> dict[str, Estimate]:
        """``task[-split][@senteval]/protocol/metric`` -> estimate, in 0..100 (correlations -100..100).

        No collective inside: ranks score different tasks. The same vectors give the same scores on any rank.
        """
        ...


class TaskEntry(NamedTuple):
    """A task that can be read from ``data_root``."""

    rows: Mapping[str, int | None]  # table it needs ("MR/all", no ending) -> official number of rows where known
    read: Callable[[Path, str, EvaluateConfig], Task]  # (data_root, full name of the task, config)
    senteval: bool = False  # "NAME@senteval" exists, in files that end in .senteval.tsv
    beside: tuple[str, ...] = ()  # files that are no tables
