"""Data modules whose examples are rows of texts: sentences, NLI pairs, triplets, and questions with answers."""

import hashlib
import itertools
import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from contrastive_encoders.core import (
    EncoderPrompts,
    InputError,
    NLIBatch,
    Ragged,
    RetrievalData,
    ScoredTripletBatch,
    SentenceBatch,
    TripletBatch,
)
from contrastive_encoders.datamodules.data_configs import (
    DataConfig,
    FileDataConfig,
    NLIDataConfig,
    QuestionDataConfig,
    RowDataConfig,
    ScoredTripletDataConfig,
    SentenceDataConfig,
    TripletDataConfig,
)
from contrastive_encoders.datamodules.sampling.held_out import HeldOutOptions, HeldOutSplit
from contrastive_encoders.datamodules.sampling.word_deletion import WordDeletion
from contrastive_encoders.datamodules.sources.hub_datasets import HubKeys
from contrastive_encoders.datamodules.sources.joined_sentences import JoinedSentences
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import (
    NLI,
    QA,
    SCORED_TRIPLETS,
    SENTENCES,
    TRIPLETS,
    RowSchema,
)
from contrastive_encoders.datamodules.sources.text_prompts import PromptedSource, prompts_of_columns
from contrastive_encoders.datamodules.store.row_statistics import LONGEST_COUNTED
from contrastive_encoders.datamodules.store.teacher_embeddings import TeacherEmbeddingStore
from contrastive_encoders.datamodules.store.token_store import BATCH_CHARACTERS, RowSource, TokenStore, group_by_size
from contrastive_encoders.datamodules.store.tokenization import WholeRows
from contrastive_encoders.datamodules.store.tokenizer import special_tokens
from contrastive_encoders.datamodules.text_datamodule import StoredData, Truncation
from contrastive_encoders.io.model_names import prompt_ids

COVERED_SHARE = 0.99  # share of the texts that the chosen length covers if no length is given

log = logging.getLogger(__name__)


class StoredRows(StoredData):
    """Base class of data modules that read rows from files or from a dataset on the hub."""

    settings: FileDataConfig
    kind: ClassVar[RowSchema]

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        hub = HubKeys(self.settings.name, self.settings.revision, self.settings.data_files, self.settings.streaming)
        self.records = RecordSource(
            self.settings.path,
            self.kind,
            columns=self.settings.columns,
            split=self.settings.split,
            on_error=self.settings.on_error,
            hub=hub,
            max_skipped=self.settings.max_skipped,
            encoding=self.settings.encoding,
            strip_html=self.settings.strip_html,
        )

    def source(self) -> RowSource:
        return self.records

    def tokenization(self, tokenizer: Any) -> WholeRows:
        label = self.kind.label
        return WholeRows(tokenizer, labeled=0 if label is None else self.records.width - 1 if label.several else 1)


class TextRows(StoredData):
    """Base class of data modules whose examples are rows of a table.

    `settle_length` chooses ``max_length`` if it is null in the settings.
    """

    settings: RowDataConfig
    kind: ClassVar[RowSchema]

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        self.taught: TeacherEmbeddingStore | None = None  # teacher embeddings of the rows that are drawn
        self.max_length: int | None = self.settings.max_length
        self._covering_length: int | None = None
        self._num_appended = 0

    def settle_length(self, limit: int, behind: int = 0) -> int:
        """Determine the maximum length ``max_length`` and return it. If it is null, it is chosen once, at most
        ``limit``. The texts must be stored.

        ``behind`` is the number of tokens that the model appends to every text within that length.
        """
        self._num_appended = behind
        if self.max_length is None:
            others = special_tokens(self.load_tokenizer()).number + behind
            self._covering_length = self.lengths.covering(COVERED_SHARE) + others
            self.max_length = min(limit, self._covering_length)
        return self.max_length

    def cuts(self) -> list[Truncation]:
        room = max(0, self.sequences.room - self._num_appended)
        return [
            Truncation("texts", self.sequences.max_length, self.lengths.truncated_fraction(room), self._covering_length)
        ]

    @property
    def has_roles(self) -> bool:
        return issubclass(self.yields, TripletBatch | ScoredTripletBatch)

    def prompts_of(self, width: int) -> list[str]:
        if self.inherits_prompts:
            return self.prompts_by_role(self.backbone_prompts, width)
        return prompts_of_columns(self.settings.prompts, self.kind, getattr(self.settings, "columns", None), width)

    def prompt_lengths(self, tokenizer: Any) -> list[int]:
        prompts = self.prompts_of(self.store.width)
        return [len(prompt_ids(tokenizer, prompt)) for prompt in prompts]

    def prompts_by_role(self, prompts: EncoderPrompts, width: int) -> list[str]:
        """Return the prompt that an encoder uses for each text of a row.

        If the rows have these roles, they are a query and documents.
        """
        if self.has_roles:
            return [prompts.query] + [prompts.document] * (width - 1)
        return [prompts.default] * width

    def task_prompts(self) -> list[str | None]:
        """Return the two prompts of a held-out task, for the queries and for the documents.

        ``None`` means the encoder's prompt, which is the same.
        """
        own = self.prompts_of(2)
        same = self.encoder_prompts is not None and own == self.prompts_by_role(self.encoder_prompts, 2)
        return [None, None] if same else [*own]

    def prompted(self, source: RowSource) -> RowSource:
        """Return a source of the same rows in which prompts are prepended to the texts."""
        prompts = self.prompts_of(source.width)
        return PromptedSource(source, prompts) if any(prompts) else source

    def texts(self) -> Iterator[str]:
        return (text for record in self.prompted(self.source()) for text in record.texts)

    def open_store(self, source: RowSource, quiet: bool) -> TokenStore:
        return super().open_store(self.prompted(source), quiet)

    @abstractmethod
    def make_batch(self, store: TokenStore, rows: np.ndarray) -> Any:
        """Return the batch of N rows of the token store, as an instance of the class in ``yields``."""

    def prepare_rows(self, store: TokenStore, tokenizer: Any) -> int:
        limit = min(int(tokenizer.model_max_length), LONGEST_COUNTED)  # fallback if no model defines a maximum
        self.sequences = SequenceReader(tokenizer, self.settle_length(limit, self._num_appended))
        return len(store)

    def batch(self, pass_index: int, examples: np.ndarray) -> Any:
        batch = self.make_batch(self.store, self.subset[examples])
        return batch if self.taught is None else batch._replace(taught=self.taught.of(batch.rows))

    @property
    def rows_used(self) -> np.ndarray | None:
        """Return the rows of the token store that may be drawn, in ascending order, (examples,), or None if all may be
        drawn.

        Call it after `setup`.
        """
        if self.num_examples == len(self.store):
            return None
        return np.sort(self.subset[np.arange(self.num_examples)])

    def used_texts(self) -> Iterator[tuple[str, ...]]:
        """Yield the texts of the rows that may be drawn, in order, without prompts, and exactly as in the source.

        They are for models with a different tokenizer than the store's. The source is read and tokenized again to find
        the rows that the store has kept.
        """
        tokenization, source = self.tokenization(self.load_tokenizer()), self.source()
        prompts, used = self.prompts_of(source.width), self.rows_used
        is_used = None if used is None else np.isin(np.arange(len(self.store)), used, assume_unique=True)
        row = 0
        for records in group_by_size(source, BATCH_CHARACTERS):
            texts = [record.texts for record in records]
            prompted = [
                tuple(text and prompt + text for prompt, text in zip(prompts, several, strict=True))
                for several in texts
            ]
            kept = list(itertools.compress(texts, tokenization.keep(prompted).is_kept))
            yield from kept if is_used is None else itertools.compress(kept, is_used[row : row + len(kept)])
            row += len(kept)

    def manifest(self) -> dict[str, Any]:
        found = super().manifest()
        return found | {"rows_per_batch": self.batch_size, "max_length": self.max_length}


class Sentences(TextRows, StoredRows):
    """Data module of single texts. If ``deletion_ratio`` is set, batches also contain a copy of each text with words
    deleted.
    """

    settings: SentenceDataConfig
    yields = SentenceBatch
    kind = SENTENCES

    def source(self) -> RowSource:
        return (
            self.records
            if self.settings.concat_sentences is None
            else JoinedSentences(self.records, self.settings.concat_sentences)
        )

    def prepare_rows(self, store: TokenStore, tokenizer: Any) -> int:
        if self.settings.deletion_ratio is not None:
            [prompt] = self.prompts_of(1)
            self.prompt_ids = np.array(prompt_ids(tokenizer, prompt), np.int64)
            self.delete_words = WordDeletion(tokenizer, self.settings.deletion_ratio, seed=self.settings.seed)
        return super().prepare_rows(store, tokenizer)

    def batch(self, pass_index: int, examples: np.ndarray) -> SentenceBatch:
        batch: SentenceBatch = super().batch(pass_index, examples)
        if self.settings.deletion_ratio is None:
            return batch
        remaining = [self._damaged(self.store.text(row), pass_index, row) for row in batch.rows.tolist()]
        ends = np.cumsum([len(ids) for ids in remaining])
        starts = np.concatenate([[0], ends[:-1]])
        return batch._replace(damaged=self.sequences.framed(np.concatenate(remaining), starts, ends))

    def _damaged(self, ids: np.ndarray, pass_index: int, row: int) -> np.ndarray:
        """Delete random words of a text, given as token ids, except for words of its prompt."""
        prompt = common_prefix(ids, self.prompt_ids)
        return np.concatenate([ids[:prompt], self.delete_words(ids[prompt:], pass_index, row)])

    def make_batch(self, store: TokenStore, rows: np.ndarray) -> SentenceBatch:
        return SentenceBatch(self.sequences(store, rows, 0), rows)


class NLIPairs(TextRows, StoredRows):
    """Data module of natural language inference (NLI) pairs: a premise, a hypothesis, and a label such as entailment.

    Pairs without a gold label are dropped.
    """

    settings: NLIDataConfig
    yields = NLIBatch
    kind = NLI

    def make_batch(self, store: TokenStore, rows: np.ndarray) -> NLIBatch:
        assert store.labels is not None
        labels = torch.from_numpy(store.labels[rows].astype(np.int64))
        return NLIBatch(self.sequences(store, rows, 0), self.sequences(store, rows, 1), labels, rows)


class TripletRows(TextRows):
    """Base class of data modules of triplets: an anchor, a positive, and, if a row has more texts, hard negatives. A
    subclass defines the source of the rows.
    """

    yields = TripletBatch

    def make_batch(self, store: TokenStore, rows: np.ndarray) -> TripletBatch:
        return TripletBatch(
            self.sequences(store, rows, 0),
            self.sequences(store, rows, 1),
            self.sequences.from_column(2, store, rows) if store.width > 2 else None,
            None,
            rows,
            self.sequences.max_length,
        )


POSITIVES = 0x9051  # random stream of the draws of a positive


class Triplets(TripletRows, StoredRows):
    """Data module of triplets that are read from files or from a dataset on the hub.

    If a row has a list of positives, one is drawn in every epoch. A share of the rows can be held out and scored.
    """

    settings: TripletDataConfig
    kind = TRIPLETS

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        options = HeldOutOptions(max_documents=self.settings.max_held_out_documents)
        share = self.settings.held_out_fraction
        self.held_out_split = HeldOutSplit(self.records, share, self.cache, options) if share else None

    def source(self) -> RowSource:
        return self.held_out_split or self.records

    def batch(self, pass_index: int, examples: np.ndarray) -> TripletBatch:
        """Return the batch of the N examples with these indices. If a row has a list of positives, one of them is drawn
        with a seed that depends on (seed, epoch, row).
        """
        batch: TripletBatch = super().batch(pass_index, examples)
        if not self.records.list_files:
            return batch
        store, rows, number = self.store, batch.rows, self.records.positives
        is_filler = np.diff(np.stack(store.bounds(rows[:, None], np.arange(store.width))), axis=0)[0] == 0
        numbers = (~is_filler[:, 1 : 1 + number]).sum(1)  # number of positives, which precede the fillers
        drawn = [
            np.random.default_rng((self.settings.seed, pass_index, row, POSITIVES)).integers(several)
            for row, several in zip(rows.tolist(), numbers.tolist(), strict=True)
        ]
        has_negatives = store.width > 1 + number
        return batch._replace(
            positives=self.sequences(store, rows, 1 + np.array(drawn, np.int64)),
            negatives=self.sequences.from_column(1 + number, store, rows) if has_negatives else None,
            all_positives=self.sequences(store, np.repeat(rows, number), np.tile(np.arange(1, 1 + number), len(rows))),
            fillers=is_filler[:, 1 + number :].ravel() if has_negatives else None,
        )

    def held_out(self) -> Sequence[RetrievalData]:
        return self.held_out_split.tasks(self.task_prompts()) if self.held_out_split else []

    def prepare_rows(self, store: TokenStore, tokenizer: Any) -> int:
        if store.width == 2 and len(self.kind.columns[0]) == 3:
            log.info("data: two columns of texts, so there are no hard negatives")
        return super().prepare_rows(store, tokenizer)


class ScoredTriplets(TextRows, StoredRows):
    """Data module of triplets with a teacher's score for each pair of the anchor and another text of the row, as the
    command `mine-negatives` writes them.
    """

    settings: ScoredTripletDataConfig
    yields = ScoredTripletBatch
    kind = SCORED_TRIPLETS

    def make_batch(self, store: TokenStore, rows: np.ndarray) -> ScoredTripletBatch:
        assert store.labels is not None
        return ScoredTripletBatch(
            self.sequences(store, rows, 0),
            self.sequences(store, rows, 1),
            self.sequences.from_column(2, store, rows),
            torch.from_numpy(store.labels[rows].reshape(len(rows), -1)),
            rows,
        )


class QuestionAnswers(Triplets):
    """Data module of pairs of a question and an answer, which are triplets usually without
    negatives."""

    settings: QuestionDataConfig
    kind = QA


class SequenceReader:
    """Reader of token sequences from the token store.

    Sequences have special tokens and are truncated at ``max_length``, as the tokenizer would do.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        specials = special_tokens(tokenizer)
        self.before, self.after, self.max_length = specials.before, specials.after, max_length
        self.room = max_length - specials.number
        self.keeps_end = tokenizer.truncation_side == "left"
        if self.room < 1:
            raise InputError(
                key="data.max_length",
                value=max_length,
                expected=f"at least {specials.number + 1} tokens, {specials.number} of which are special tokens",
                hint="Usual values are 32 to 128.",
            )

    def __call__(self, store: TokenStore, rows: np.ndarray, column: int | np.ndarray) -> Ragged:
        """Return one text of each of N rows as a token sequence, from the same column of all rows, or from a different
        column of each row.
        """
        return self.framed(store.ids, *store.bounds(rows, column))

    def from_column(self, first: int, store: TokenStore, rows: np.ndarray) -> Ragged:
        """Return the texts of N rows in the column ``first`` and all later columns, as token sequences. The texts of a
        row are adjacent.
        """
        columns = np.arange(first, store.width)
        return self(store, np.repeat(rows, len(columns)), np.tile(columns, len(rows)))

    def framed(self, flat: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Ragged:
        """Cut N slices out of ``flat``, truncate each to the maximum length, and add the special tokens."""
        kept = np.minimum(ends - starts, self.room)
        starts = ends - kept if self.keeps_end else starts
        lengths = kept + (len(self.before) + len(self.after))
        lasts = np.cumsum(lengths)
        firsts = lasts - lengths
        ids = np.empty(int(lengths.sum()), np.int64)
        ids[firsts[:, None] + np.arange(len(self.before))] = self.before
        ids[lasts[:, None] - np.arange(len(self.after), 0, -1)] = self.after
        within = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
        ids[np.repeat(firsts + len(self.before), kept) + within] = flat[np.repeat(starts, kept) + within]
        return Ragged(torch.from_numpy(ids), lengths)


def common_prefix(ids: np.ndarray, prompt_ids: np.ndarray) -> int:
    """Return the length of the common prefix of a text's ids and a prompt's ids, at most the length of the text minus
    one.
    """
    limit = min(len(ids) - 1, len(prompt_ids))
    return int(np.cumprod(ids[:limit] == prompt_ids[:limit]).sum())


def text_groups(store: TokenStore, rows: np.ndarray, column: int) -> torch.Tensor:
    """Return a number for each of N rows, (N,) int64, which is the same for rows with equal texts.

    Numbers are 64-bit hashes of the full texts in this column. Equal texts have the same number in any process.
    """
    digests = (hashlib.blake2b(store.text(int(row), column).tobytes(), digest_size=8).digest() for row in rows)
    return torch.from_numpy(np.frombuffer(b"".join(digests), "<i8").astype(np.int64))
