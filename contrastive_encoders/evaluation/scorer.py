"""Scorers of a run: a suite of tasks for encoders, held-out texts for generators."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from contrastive_encoders.core import Changes, Corpus, Embedder, EncoderPrompts, ItemScores
from contrastive_encoders.evaluation.embedding_pool import LastVectors, prompts_of
from contrastive_encoders.statistics.bootstrap import Scores


class Named(Protocol):
    """A task, by its name."""

    @property
    def name(self) -> str: ...


class Scorer(Protocol):
    """Iterating over it gives its tasks; all that a run asks of what scores its model. A class that has no texts to
    look for, no baselines, no changes to tell and nothing else to be compared with inherits from it.
    """

    not_as_published: dict[str, str]  # table with other rows than the published one -> how many

    def __iter__(self) -> Iterator[Named]: ...

    def __len__(self) -> int: ...

    def score_names(self) -> list[str]:
        """The names of all scores, known without a model."""
        ...

    def score(
        self,
        module: Any,
        *,
        intervals: bool,
        store: LastVectors | None = None,
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

    def corpora(self) -> dict[str, Corpus]:
        """Name of each retrieval task -> what its queries are ranked among."""
        return {}

    def changes(self, before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> dict[str, Changes]:
        """Compare, of retrieval tasks, the first document of each query before and after (``Scores.found``)."""
        return {}


class InTraining(NamedTuple):
    """The encoder of a module in training as an `Embedder`, with how it embeds while it is scored."""

    embedder: Embedder
    autocast: torch.dtype | None
    shows_progress: bool

    @property
    def normalize(self) -> bool:
        return self.embedder.normalize

    @property
    def prompts(self) -> EncoderPrompts:
        return prompts_of(self.embedder)

    @property
    def device(self) -> torch.device:
        return self.embedder.device

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        autocast: torch.dtype | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        return self.embedder.embed(texts, prompt=prompt, autocast=self.autocast, progress=self.shows_progress)
