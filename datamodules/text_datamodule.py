"""Base class of the data modules, which tokenize once and then draw examples in a new order in every epoch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytorch_lightning as pl

from contrastive_encoders.core import EncoderPrompts, RetrievalData
from contrastive_encoders.datamodules.data_configs import DataConfig
from contrastive_encoders.datamodules.overlap import Overlap, find_overlap
from contrastive_encoders.datamodules.sampling.example_order import ExampleOrder, NestedSubset
from contrastive_encoders.datamodules.sampling.stream import BatchStream, EpochBatches, stream_for
from contrastive_encoders.datamodules.store.row_statistics import TextLengths
from contrastive_encoders.datamodules.store.token_store import RowSource, TokenStore, build_or_open
from contrastive_encoders.datamodules.store.tokenization import RowTokenizer
from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
from contrastive_encoders.datamodules.store.unknown_tokens import UnknownTokens, count_unknown, sample_rows
from contrastive_encoders.io.cached_rows import cache_folder


class Truncation(NamedTuple):
    """Maximum length to which texts are truncated, and the fraction of their tokens that is removed."""

    of: str  # description of the texts
    max_length: int  # tokens
    share_behind: float  # fraction of their tokens that is removed, 0..1
    wanted: int | None = None  # tokens needed to keep 99 % of the texts complete, if the length was chosen by that


class StoredData(pl.LightningDataModule, ABC):
    """Base class of data modules that draw examples from a token store.

    A subclass defines the rows that are read, their tokenization, which rows are drawn, and the batches.

    A module is created from its settings. Their class is declared as the type of ``settings``.
    """

    yields: ClassVar[type]
    settings: DataConfig
    content_sum: ClassVar[str] = "rows_sha256"  # entry of the store's manifest that a checkpoint stores

    def __init__(self, settings: DataConfig) -> None:
        super().__init__()
        self.settings = settings
        self.batch_size, self.drop_last = settings.batch_size, settings.drop_last
        self.cache = cache_folder(self.settings.cache_dir)
        self.passes = 1  # passes over the data per epoch; also the factor for the examples per batch
        self.groups: Sequence[np.ndarray] = ()  # groups of examples that stay together; empty: no constraints
        self.backbone_prompts = EncoderPrompts()  # used if ``data.prompts`` is None
        self.encoder_prompts: EncoderPrompts | None = None  # prompts for scoring held-out texts; None: unknown
        self._store: TokenStore | None = None

    @abstractmethod
    def source(self) -> RowSource:
        """Return the source of the rows to tokenize."""

    @abstractmethod
    def tokenization(self, tokenizer: Any) -> RowTokenizer:
        """Return the object that tokenizes the rows of `source` and selects the rows to keep."""

    @abstractmethod
    def prepare_rows(self, store: TokenStore, tokenizer: Any) -> int:
        """Prepare everything that `batch` needs from the store, and return the number of rows that may be drawn."""

    @abstractmethod
    def batch(self, pass_index: int, examples: np.ndarray) -> Any:
        """Return the batch of the N examples with these indices, as an instance of the class in ``yields``. It must be
        complete, since the data loader does not collate.
        """

    @property
    def inherits_prompts(self) -> bool:
        """Return whether the texts get the prompts of the backbone."""
        return getattr(self.settings, "prompts", None) is None

    @property
    def has_roles(self) -> bool:
        """Return whether the texts of a row have different roles, namely query and document."""
        return False

    def prompts_of(self, width: int) -> list[str]:
        """Return the ``width`` prompts for a row, one for each of its texts."""
        return [self.backbone_prompts.default if self.inherits_prompts else ""] * width

    def cuts(self) -> list[Truncation]:
        """Return the lengths to which texts are truncated, and the fraction of tokens that each truncation removes.
        Call it after `setup`.
        """
        return []

    @abstractmethod
    def texts(self) -> Iterator[str]:
        """Yield the training texts as they are passed to the tokenizer."""

    def prepare_data(self) -> None:
        """Tokenize the texts into the cache. A second call opens the existing store."""
        self.open_store(self.source(), quiet=self.settings.quiet)

    def setup(self, stage: str | None = None) -> None:
        """Open the token store and choose the rows to draw from. Without ``drop_last``, the batch size is at most their
        number.
        """
        if self._store is None:
            rows = self.prepare_rows(self.opened, self.load_tokenizer())
            self.subset = NestedSubset(rows, self.settings.fraction, self.settings.seed)
            if not self.drop_last:
                self.batch_size = min(self.batch_size, max(1, self.num_examples // self.passes))
            self._store = self.opened

    @cached_property
    def opened(self) -> TokenStore:
        """Return the token store before the rows to draw and the maximum length are determined."""
        return self.open_store(self.source(), quiet=True)

    @property
    def store(self) -> TokenStore:
        """The store of the tokenized rows. The store is opened on first access."""
        self.setup()
        assert self._store is not None
        return self._store

    @property
    def lengths(self) -> TextLengths:
        """The histogram of the text lengths in tokens."""
        return self.opened.lengths

    @property
    def num_examples(self) -> int:
        """The number of examples to draw from."""
        return len(self.subset)

    @property
    def data_id(self) -> str:
        """The checksum of the token store's content, which identifies the data."""
        return str(self.store.manifest[self.content_sum])

    def epoch_batches(self, rank: int = 0, world: int = 1) -> EpochBatches:
        """Return the dataset of an epoch's batches. Each item contains this rank's examples of a global batch.

        Raises:
            InputError: The batch size is not divisible by the number of processes, or exceeds the size of the data.
        """
        self.setup()
        order = ExampleOrder(
            self.num_examples,
            self.batch_size * self.passes,
            seed=self.settings.seed,
            rank=rank,
            world=world,
            drop_last=self.drop_last,
            groups=self.groups,
        )
        return EpochBatches(self.batch, order, self.passes)

    def train_dataloader(self) -> BatchStream:
        return stream_for(self.trainer, self.epoch_batches, data_id=self.data_id, num_workers=self.settings.num_workers)

    def samples(self) -> Iterator[Any]:
        """Yield a batch of two examples in the format of training batches."""
        self.setup()
        yield self.batch(0, np.arange(min(2, self.num_examples)))

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the data: the manifest of the token store, and how much of the data is used."""
        found = {**self.store.account, "used": self.num_examples, "fraction": self.settings.fraction}
        cuts = [cut._asdict() for cut in self.cuts()]
        return found | {"cuts": cuts, "unknown_tokens": self.unknown_tokens._asdict()}

    def rows_at(self, places: np.ndarray) -> np.ndarray:
        """Return the row numbers in the token store for N positions among the rows to draw from."""
        return self.subset[places]

    def prompt_lengths(self, tokenizer: Any) -> Sequence[int]:
        """Return the number of prompt tokens before each text of a row."""
        return [0] * self.store.width

    @cached_property
    def unknown_tokens(self) -> UnknownTokens:
        """The counts of unknown tokens in the rows that may be drawn, or in a sample of these rows if there are
        many.
        """
        store, tokenizer, used = self.store, self.load_tokenizer(), len(self.subset)
        rows = self.rows_at(sample_rows(used))
        return count_unknown(store, tokenizer, rows, used, self.prompt_lengths(tokenizer))

    def held_out(self) -> Sequence[Any]:
        return list[RetrievalData]()

    def overlap(self, sentences: Sequence[str]) -> Overlap:
        """Find the test sentences that occur verbatim in the texts of the token store."""
        return find_overlap(self.store, self.tokenization(self.load_tokenizer()), sentences)

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        return self.overlap(sentences).counts()

    def load_tokenizer(self) -> Any:
        return load_tokenizer(self.settings.tokenizer, ends=bool(self.settings.append_eos))

    def open_store(self, source: RowSource, quiet: bool) -> TokenStore:
        return build_or_open(
            source,
            self.tokenization(self.load_tokenizer()),
            self.cache,
            quiet=quiet,
            verify=self.settings.verify,
            workers=self.settings.tokenizer_workers,
        )
