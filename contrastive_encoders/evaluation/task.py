"""Interface of evaluation tasks, which provide texts to encode and score their embeddings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.statistics.bootstrap import Estimate


class ScoringOptions(NamedTuple):
    """Options for scoring a task: its device, and whether to compute intervals."""

    device: torch.device = torch.device("cpu")  # where classifiers are trained
    intervals: bool = True  # whether to compute 95 % intervals


class Task(Protocol):
    """Interface of an evaluation task, which contains texts and gold values, but no embeddings."""

    name: str  # task[-split][@senteval], the prefix of its score names

    def texts(self) -> Iterable[Sequence[str]]:
        """Return all texts that ``score`` looks up in the pool."""
        ...

    def score_names(self) -> list[str]:
        """Return the names of the scores that ``score`` returns, which are known without embeddings."""
        ...

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        """Return a mapping from score names, ``task[-split][@senteval]/protocol/metric``, to estimates from 0 to 100
        (correlations: from -100).

        The method must not use collective operations, because ranks score different tasks. The same embeddings give the
        same scores on any rank.
        """
        ...


class TaskEntry(NamedTuple):
    """Catalog entry of a task whose tables are in ``data_root``."""

    rows: Mapping[str, int | None]  # required table ("MR/all", no ending) -> official number of rows, if known
    read: Callable[[Path, str, EvaluateConfig], Task]  # (data_root, full name of the task, config)
    senteval: bool = False  # whether "NAME@senteval" exists, in files that end in .senteval.tsv
    extra_files: tuple[str, ...] = ()  # files that are not tables
