"""Rows of texts as batches: single sentences, NLI pairs, triplets, questions with answers."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytorch_lightning as pl
import torch

from contracts import NLIBatch, RetrievalTask, SentenceBatch, TripletBatch
from datamodules.documents import default_cache
from datamodules.order import nested_subset
from datamodules.overlap import count_row_overlap
from datamodules.record_kinds import NLI, QA, SENTENCES, TRIPLETS, RowKind
from datamodules.records import RecordSource
from datamodules.row_store import RowSource, RowStore, build_or_open_rows
from datamodules.sequences import Sequences, text_groups
from datamodules.stream import BatchStream, place_of
from datamodules.tokenizer_loading import load_tokenizer

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class StoredRows(pl.LightningDataModule, ABC):
    """Rows of texts, tokenised once; examples of them in a new order every epoch. A subclass says what a row is made
    of, what an example is, and what a batch.

    ``path`` is a file, several, or a folder. ``columns`` names the columns of the texts where the names are not known.
    ``batch_size`` counts examples over all processes.
    """

    yields: ClassVar[type]
    kind: ClassVar[RowKind]

    path: str | Sequence[str]
    tokenizer: str
    batch_size: int
    columns: Sequence[str] | None = None
    split: str = "train"
    on_error: Literal["fail", "skip"] = "fail"
    seed: int = 1
    fraction: float = 1.0
    cache_dir: str | None = None
    num_workers: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.records = RecordSource(
            self.path, self.kind, columns=self.columns, split=self.split, on_error=self.on_error
        )
        self.cache = Path(self.cache_dir).expanduser() if self.cache_dir else default_cache()
        nested_subset(1, self.fraction, self.seed)  # refuses a fraction that is none
        self.store: RowStore | None = None

    def source(self) -> RowSource:
        """What is tokenised."""
        return self.records

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Those that are drawn from."""

    @abstractmethod
    def _batch(self, pass_index: int, examples: np.ndarray) -> Any:
        """(N,) numbers of examples -> what the class ``yields``."""

    def prepare_data(self) -> None:
        """Tokenise into the cache, once; a second call only opens what is there."""
        self._open_store(quiet=self.quiet)

    def setup(self, stage: str | None = None) -> None:
        """Open the store and fix which rows are drawn from."""
        if self.store is not None:
            return
        store = self._open_store(quiet=True)
        self.subset = nested_subset(len(store), self.fraction, self.seed)
        self.store = store

    def train_dataloader(self) -> BatchStream:
        self.setup()
        assert self.store is not None
        return BatchStream(
            self._batch,
            self.num_examples,
            self.batch_size,
            seed=self.seed,
            data_id=self.store.manifest["rows_sha256"],
            num_workers=self.num_workers,
            **place_of(self.trainer),
        )

    def texts(self) -> Iterator[str]:
        return self.records.texts()

    def manifest(self) -> dict[str, Any]:
        """The store's account of the source, and what of it is drawn from."""
        self.setup()
        assert self.store is not None
        return {
            **self.store.manifest,
            "used": self.num_examples,
            "fraction": self.fraction,
        }

    def held_out(self) -> Sequence[Any]:
        return list[RetrievalTask]()

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        self.setup()
        assert self.store is not None
        return count_row_overlap(self.store, load_tokenizer(self.tokenizer), sentences)

    def _open_store(self, quiet: bool) -> RowStore:
        return build_or_open_rows(
            self.source(),
            load_tokenizer(self.tokenizer),
            self.cache,
            labelled=self.kind.label is not None,
            quiet=quiet,
        )


@dataclass(eq=False, repr=False)
class TextRows(StoredRows):
    """Each row is an example. ``max_length`` counts tokens of a text, special tokens included, capped by the
    tokenizer's own limit.
    """

    max_length: int = 128

    @abstractmethod
    def make_batch(self, store: RowStore, rows: np.ndarray) -> Any:
        """(N,) rows of the store -> what the class ``yields``."""

    def setup(self, stage: str | None = None) -> None:
        if self.store is None:
            self.sequences = Sequences(load_tokenizer(self.tokenizer), self.max_length)
        super().setup(stage)

    @property
    def num_examples(self) -> int:
        return len(self.subset)

    def manifest(self) -> dict[str, Any]:
        return super().manifest() | {"rows_per_batch": self.batch_size, "max_length": self.sequences.longest}

    def _batch(self, pass_index: int, examples: np.ndarray) -> Any:
        assert self.store is not None
        return self.make_batch(self.store, self.subset[examples])


class Sentences(TextRows):
    """Single texts: a line each, or a column "text"."""

    yields = SentenceBatch
    kind = SENTENCES

    def make_batch(self, store: RowStore, rows: np.ndarray) -> SentenceBatch:
        return SentenceBatch(self.sequences(store, rows, 0), rows)


class NLIPairs(TextRows):
    """Premise, hypothesis and their relation; pairs without a gold label are left out."""

    yields = NLIBatch
    kind = NLI

    def make_batch(self, store: RowStore, rows: np.ndarray) -> NLIBatch:
        assert store.labels is not None
        labels = torch.from_numpy(store.labels[rows].astype(np.int64))
        return NLIBatch(self.sequences(store, rows, 0), self.sequences(store, rows, 1), labels, rows)


class Triplets(TextRows):
    """Anchor, positive and, where the data has a third column, hard negative."""

    yields = TripletBatch
    kind = TRIPLETS

    def setup(self, stage: str | None = None) -> None:
        first = self.store is None
        super().setup(stage)
        if first and self.store is not None and self.store.width == 2 and len(self.kind.columns[0]) == 3:
            log.info("data: two columns of texts, so there are no hard negatives")

    def make_batch(self, store: RowStore, rows: np.ndarray) -> TripletBatch:
        return TripletBatch(
            self.sequences(store, rows, 0),
            self.sequences(store, rows, 1),
            self.sequences(store, rows, 2) if store.width == 3 else None,
            text_groups(store, rows, 0),
            rows,
        )


class QuestionAnswers(Triplets):
    """Questions with their answers: triplets of two columns."""

    kind = QA
