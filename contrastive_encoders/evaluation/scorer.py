"""Interface of scorers, which score an encoder on a suite of tasks, or a generator on held-out texts."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch

from contrastive_encoders.core import Changes, CorpusInfo, ItemScores
from contrastive_encoders.evaluation.embedding_pool import LastPoolEmbeddings
from contrastive_encoders.statistics.bootstrap import Scores


class Scorer(Protocol):
    """Interface of an object that scores the model of a run. Iteration yields its tasks, each with a ``name``."""

    row_count_mismatches: Mapping[str, str] = MappingProxyType({})  # table -> its number of rows

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def score_names(self) -> list[str]:
        """Return the names of all scores, which are known without a model."""
        ...

    def score(
        self,
        module: Any,
        *,
        intervals: bool,
        store: LastPoolEmbeddings | None = None,
        autocast: torch.dtype | None = None,
        progress: bool = False,
    ) -> Scores:
        """Score a module in training, with identical results on every rank. All ranks must call this.

        Args:
            module: the module.
            intervals: whether to compute intervals.
            store: keeps embeddings for the next call.
            autocast: data type of matmuls.
            progress: whether to show the progress.
        """
        ...

    def before(self, module: Any, **options: Any) -> Scores:
        """Return the scores with which the final scores are compared: by default, the scores before training."""
        return self.score(module, **options)

    def sentences(self) -> dict[str, list[str]]:
        """Return the distinct texts of each task, which are searched for in the training data."""
        return {}

    def baselines(self) -> dict[str, float]:
        """Return the scores of baselines that need no model."""
        return {}

    def with_baselines(self, items: ItemScores) -> ItemScores:
        """Return ``items`` with the baselines' scores of single test items added."""
        return items

    def corpora(self) -> dict[str, CorpusInfo]:
        """Return, for each retrieval task, information about its documents and queries."""
        return {}

    def changes(self, before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> dict[str, Changes]:
        """Compare the top document of each retrieval query before and after training (``Scores.first_documents``)."""
        return {}
