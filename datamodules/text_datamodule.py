"""The base class of the data modules: tokenise once, then draw examples in a new order every epoch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytorch_lightning as pl

from contrastive_encoders.core import EncoderPrompts, RetrievalTask
from contrastive_encoders.datamodules.data_configs import DataConfig
from contrastive_encoders.datamodules.overlap import Overlap, find_overlap
from contrastive_encoders.datamodules.sampling.distributed_sampler import DistributedBatchSampler, nested_subset
from contrastive_encoders.datamodules.sampling.stream import BatchStream, EpochBatches, stream_for
from contrastive_encoders.datamodules.store.row_statistics import TextLengths
from contrastive_encoders.datamodules.store.token_store import RowSource, TokenStore, build_or_open
from contrastive_encoders.datamodules.store.tokenization import RowTokenizer
from contrastive_encoders.datamodules.store.tokenizer import load_tokenizer
from contrastive_encoders.datamodules.store.unknown_tokens import UnknownTokens, count_unknown, sampled
from contrastive_encoders.io.cached_rows import cache_folder


class Truncation(NamedTuple):
    """The length at which longer texts are cut."""

    of: str  # which texts
    max_length: int  # tokens
    share_behind: float  # of their tokens, 0..1
    wanted: int | None = None  # tokens that hold 99 % of the texts whole, where the length was chosen by that


class TextData(pl.LightningDataModule, ABC):
    """A subclass defines the rows that are read, how they become ids, which of them are drawn, and the batches.

    A module is made from its settings, whose class it declares as the type of ``settings``.
    """

    yields: ClassVar[type]
    settings: DataConfig
    content_sum: ClassVar[str] = "rows_sha256"  # what of the store's manifest names its content in a checkpoint

    def __init__(self, settings: DataConfig) -> None:
        super().__init__()
        self.settings = settings
        self.batch_size, self.drop_last = settings.batch_size, settings.drop_last
        self.cache = cache_folder(self.settings.cache_dir)
        self.passes = 1  # of an epoch over the data; a batch has so many times its examples
        self.groups: Sequence[np.ndarray] = ()  # examples that stand side by side; none: each stands anywhere
        self.backbone_prompts = EncoderPrompts()  # of texts for which ``data.prompts`` says nothing
        self.encoder_prompts: EncoderPrompts | None = None  # with which held-out texts are scored; None: not known
        self._store: TokenStore | None = None
        nested_subset(1, self.settings.fraction, self.settings.seed)  # refuses a fraction that is none

    @abstractmethod
    def source(self) -> RowSource:
        """Return the rows to tokenise."""

    @abstractmethod
    def reading(self, tokenizer: Any) -> RowTokenizer:
        """Return the tokenisation of the rows of `source`, and the rule which of them are kept."""

    @abstractmethod
    def ready(self, store: TokenStore, tokenizer: Any) -> int:
        """Prepare what `batch` needs from the store, and return the number of rows that may be drawn."""

    @abstractmethod
    def batch(self, pass_index: int, examples: np.ndarray) -> Any:
        """Make a batch, of the class ``yields``, from (N,) numbers of examples."""

    @property
    def inherits_prompts(self) -> bool:
        """Whether the prompts of the texts are those of the backbone."""
        return getattr(self.settings, "prompts", None) is None

    @property
    def has_roles(self) -> bool:
        """Whether the texts of a row are a query and documents."""
        return False

    def prompts_of(self, width: int) -> list[str]:
        """Return the prompt of each of ``width`` texts of a row."""
        return [self.backbone_prompts.default if self.inherits_prompts else ""] * width

    def cuts(self) -> list[Truncation]:
        """Return the lengths at which texts are cut, and the share of tokens lost; call it after `setup`."""
        return []

    @abstractmethod
    def texts(self) -> Iterator[str]:
        """Yield the training texts as the tokenizer gets them."""

    def prepare_data(self) -> None:
        """Tokenise the texts into the cache; a second call opens the store that is there."""
        self.open_store(self.source(), quiet=self.settings.quiet)

    def setup(self, stage: str | None = None) -> None:
        """Open the store, and choose the rows that are drawn."""
        if self._store is None:
            rows = self.ready(self.opened, self.load_tokenizer())
            self.subset = nested_subset(rows, self.settings.fraction, self.settings.seed)
            self._store = self.opened

    @cached_property
    def opened(self) -> TokenStore:
        """The tokenised rows, before it is settled which are drawn, and at what length they are cut."""
        return self.open_store(self.source(), quiet=True)

    @property
    def store(self) -> TokenStore:
        """The tokenised rows; the store is opened at the first access."""
        self.setup()
        assert self._store is not None
        return self._store

    @property
    def lengths(self) -> TextLengths:
        """The lengths of the texts."""
        return self.opened.lengths

    @property
    def num_examples(self) -> int:
        """The number of examples to draw from."""
        return len(self.subset)

    @property
    def data_id(self) -> str:
        """The checksum of the store's content."""
        return str(self.store.manifest[self.content_sum])

    def epoch_batches(self, rank: int = 0, world: int = 1) -> EpochBatches:
        """This rank's share of the global batches.

        Raises:
            InputError: the batch size does not split evenly, or exceeds the data.
        """
        self.setup()
        order = DistributedBatchSampler(
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
        """A batch of two examples, as those of training will be."""
        self.setup()
        yield self.batch(0, np.arange(min(2, self.num_examples)))

    def manifest(self) -> dict[str, Any]:
        """Return the store's account of the source, and the part of it that is drawn from."""
        found = {**self.store.account, "used": self.num_examples, "fraction": self.settings.fraction}
        cuts = [cut._asdict() for cut in self.cuts()]
        return found | {"cuts": cuts, "unknown_tokens": self.unknown_tokens._asdict()}

    def rows_at(self, places: np.ndarray) -> np.ndarray:
        """Return the rows of the store at these (N,) places among those that are drawn."""
        return self.subset[places]

    def prompt_lengths(self, tokenizer: Any) -> Sequence[int]:
        """Return the tokens of the prompt before each text of a row."""
        return [0] * self.store.width

    @cached_property
    def unknown_tokens(self) -> UnknownTokens:
        """The unknown tokens of the rows that may be drawn, of a sample if there are many."""
        store, tokenizer, used = self.store, self.load_tokenizer(), len(self.subset)
        rows = self.rows_at(sampled(used))
        return count_unknown(store, tokenizer, rows, used, self.prompt_lengths(tokenizer))

    def held_out(self) -> Sequence[Any]:
        return list[RetrievalTask]()

    def overlap(self, sentences: Sequence[str]) -> Overlap:
        """Which of these sentences stand word for word in the store."""
        return find_overlap(self.store, self.reading(self.load_tokenizer()), sentences)

    def count_overlap(self, sentences: Sequence[str]) -> dict[str, int]:
        return self.overlap(sentences).counts()

    def load_tokenizer(self) -> Any:
        return load_tokenizer(self.settings.tokenizer, ends=bool(self.settings.append_end))

    def open_store(self, source: RowSource, quiet: bool) -> TokenStore:
        return build_or_open(
            source,
            self.reading(self.load_tokenizer()),
            self.cache,
            quiet=quiet,
            verify=self.settings.verify,
            workers=self.settings.tokenizer_workers,
        )
