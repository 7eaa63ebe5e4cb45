"""Protocols between packages: what evaluates, exports and trains expects of models and data."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:  # a command line that only prints its help must not wait for torch
    import numpy as np
    import torch
    from torch import Tensor
from contrastive_encoders.core.tasks import RetrievalTask


class Embedder(Protocol):
    """All that evaluation and export know about a model that makes vectors."""

    @property
    def normalize(self) -> bool:
        """Whether the encoder normalises its vectors to length 1."""
        ...

    @property
    def device(self) -> "torch.device":
        """The device that the encoder computes on; classifiers of its vectors are trained there, too."""
        ...

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        autocast: "torch.dtype | None" = None,
        progress: bool | None = None,
    ) -> "Tensor":
        """N texts -> (N, width) float32 rows on the CPU, in input order.

        ``prompt`` stands before each text, ``autocast`` is the type of products, ``progress`` shows how far it is. None
        is what the model does by itself; a model that knows no prompt or no autocast does without.
        """
        ...


class HeldOutTexts(NamedTuple):
    """What held-out texts cost a model that writes, and whether it answers rightly; the same on every rank."""

    losses: "np.ndarray"  # (texts,) float64, -log p of a text, all its tokens together
    tokens: "np.ndarray"  # (texts,) int64
    right: "np.ndarray"  # (pairs,) bool
    batch_size: int | None  # texts whose mean loss is averaged with those of other batches; None: all tokens alike


@runtime_checkable
class Writer(Protocol):
    """All that evaluation knows about a model that writes texts and has no vectors."""

    def held_out_texts(self) -> HeldOutTexts:
        """Score the held-out texts. All ranks must call it."""
        ...


@runtime_checkable
class PairScorer(Protocol):
    """All that evaluation knows about a model that reads a query and a document together."""

    def score_pairs(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        autocast: "torch.dtype | None" = None,
        progress: bool = True,
    ) -> "Tensor":
        """N queries and as many documents -> (N,) float32 scores on the CPU; more is better."""
        ...


class DataModule(Protocol):
    """What training asks of a data module beyond Lightning's own methods."""

    def prepare_data(self) -> None:
        """Read, tokenise and store; one process does it while the others wait for its file lock."""
        ...

    def samples(self) -> Iterator[Any]:
        """Yield a small batch like those of training; for a mixture, one of each part."""
        ...

    def texts(self) -> Iterator[str]:
        """Yield the training texts, on which ``backbone=tiny`` trains a tokenizer."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Return the source of the data, counts of rows kept and dropped, and sha256, for ``results.json``."""
        ...

    def held_out(self) -> "Sequence[RetrievalTask]":
        """Return tasks made from data that is held out from training. They are scored besides the suite; most data has
        none."""
        ...

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        """Count the test sentences that stand word for word in the training text.

        Returns ``checked`` (long enough to tell), ``found``.
        """
        ...
