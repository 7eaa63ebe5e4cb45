"""Scorers of a run: a suite of tasks for encoders, held-out texts for generators."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch

from contrastive_encoders.core import Changes, CorpusInfo, ItemScores
from contrastive_encoders.evaluation.embedding_pool import LastPoolEmbeddings
from contrastive_encoders.statistics.bootstrap import Scores


class Scorer(Protocol):
    """What scores the model of a run; iterating over it yields its tasks, each with a ``name``."""

    not_as_published: Mapping[str, str] = MappingProxyType({})  # table -> its number of rows

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def score_names(self) -> list[str]:
        """The names of all scores, known without a model."""
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
        """The very same scores of a module in training on every rank; all ranks must call it. ``store`` keeps vectors
        for the next time, ``autocast`` is the type of products, ``progress`` shows how far it is.
        """
        ...

    def before(self, module: Any, **options: Any) -> Scores:
        """What the scores at the end are compared with: the same of the module before training."""
        return self.score(module, **options)

    def sentences(self) -> dict[str, list[str]]:
        """Task -> its distinct texts, to look for in the training text."""
        return {}

    def baselines(self) -> dict[str, float]:
        """Scores that need no model."""
        return {}

    def with_baselines(self, items: ItemScores) -> ItemScores:
        """The items with those of the baselines."""
        return items

    def corpora(self) -> dict[str, CorpusInfo]:
        """Name of each retrieval task -> what its queries are ranked among."""
        return {}

    def changes(self, before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> dict[str, Changes]:
        """Compare, of retrieval tasks, the first document of each query before and after (``Scores.found``)."""
        return {}
