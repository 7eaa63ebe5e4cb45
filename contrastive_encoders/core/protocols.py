"""Protocols between packages: the interfaces of models and data for evaluation, export, and training."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:  # a command that only prints its help should not import torch
    import numpy as np
    import torch
    from torch import Tensor
from contrastive_encoders.core.tasks import RetrievalData


class Embedder(Protocol):
    """Interface of a model that embeds texts, for evaluation and export."""

    @property
    def normalize(self) -> bool:
        """True if the encoder L2-normalizes its embeddings."""
        ...

    @property
    def device(self) -> "torch.device":
        """The device of the encoder. Classifiers on its embeddings are trained on the same device."""
        ...

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        autocast: "torch.dtype | None" = None,
        progress: bool | None = None,
    ) -> "Tensor":
        """Return the (N, width) float32 embeddings of N texts on the CPU, in input order.

        Args:
            prompt: prepended to each text.
            autocast: dtype of matmuls.
            progress: whether to show the progress.

        None selects the model's default. A model that does not support prompts or autocast ignores them.
        """
        ...


class HeldOutTexts(NamedTuple):
    """Losses of a generator on held-out texts, and whether it answers correctly for each held-out pair. Identical on
    all ranks.
    """

    losses: "np.ndarray"  # (texts,) float64, -log p of a text, summed over its tokens
    tokens: "np.ndarray"  # (texts,) int64
    right: "np.ndarray"  # (pairs,) bool
    # number of texts per batch, whose mean losses are averaged; None: all tokens have equal weight
    batch_size: int | None


@runtime_checkable
class Writer(Protocol):
    """Interface of a model that generates texts and has no embeddings, for evaluation."""

    def held_out_texts(self) -> HeldOutTexts:
        """Score the held-out texts. All ranks must call it."""
        ...


@runtime_checkable
class PairScorer(Protocol):
    """Interface of a model that reads a query and a document together and scores the pair, for evaluation."""

    def score_pairs(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        autocast: "torch.dtype | None" = None,
        progress: bool = True,
    ) -> "Tensor":
        """Return (N,) float32 scores on the CPU for N queries and N documents; higher is better."""
        ...


class DataModule(Protocol):
    """Interface of a data module for training, in addition to Lightning's own methods."""

    def prepare_data(self) -> None:
        """Read, tokenize, and store the data. One process does this while the others wait for its file lock."""
        ...

    def samples(self) -> Iterator[Any]:
        """Yield a small batch in the format of training batches; for a mixture, one batch per dataset."""
        ...

    def texts(self) -> Iterator[str]:
        """Yield the training texts, on which ``backbone=tiny`` trains a tokenizer."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Return the record of the data for ``results.json``: its source, its SHA-256, and the numbers of kept and
        dropped rows.
        """
        ...

    def held_out(self) -> "Sequence[RetrievalData]":
        """Return tasks made from data that is held out from training. They are scored in addition to the suite; most
        data has none.
        """
        ...

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        """Count the test sentences that occur verbatim in the training texts.

        Returns ``checked`` (those that are long enough) and ``found``.
        """
        ...
