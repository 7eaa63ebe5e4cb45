"""Data modules for DeCLUTR: batches of spans that are sampled from documents (Giorgi et al. 2021)."""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from contrastive_encoders.core import InputError, RetrievalData, SpanBatch
from contrastive_encoders.datamodules.data_configs import (
    DataConfig,
    DocumentDataConfig,
    ModuleDataConfig,
    SpanDataConfig,
)
from contrastive_encoders.datamodules.sampling.span_batches import (
    LONGEST_SPAN,
    SHORTEST_SPAN,
    SpanBatchBuilder,
    choose_max_span,
)
from contrastive_encoders.datamodules.sampling.spans import SpanRule
from contrastive_encoders.datamodules.sources.hub_datasets import HubKeys
from contrastive_encoders.datamodules.sources.pydocs import PydocsSource
from contrastive_encoders.datamodules.sources.raw_documents import DocumentSource
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.sources.text_source import TextSource
from contrastive_encoders.datamodules.store.token_store import RowSource, TokenStore
from contrastive_encoders.datamodules.store.tokenization import LengthRule, LongDocuments
from contrastive_encoders.datamodules.store.tokenizer import special_tokens, word_start_table
from contrastive_encoders.datamodules.text_datamodule import StoredData, Truncation
from contrastive_encoders.io.model_names import prompt_ids

CHECKED_DOCUMENTS = 100  # documents that are checked to report truncated spans

log = logging.getLogger(__name__)


class DocumentSpans(StoredData):
    """Base class of data modules that sample anchor and positive spans from long documents. A subclass defines the
    source of the documents.

    Lengths are in tokens without special tokens, except for ``max_length``, which includes them.

    The default of ``min_document_length`` is 2 * A * max_span tokens. ``length_unit="words"`` is the rule of the
    published script (more than this number of whitespace-separated words).

    ``max_span="auto"`` selects the largest value up to 512 that fits into a sequence and for which 9 of 10 documents
    are long enough, among documents that are long enough for the smallest value, 16. It reduces min_span to a quarter
    of it if it is larger.

    ``match_span_count_of=2`` draws as many anchors per batch and epoch as 2 anchors per document would (figure 2 of the
    paper). With anchors_per_document=1, a batch has twice as many documents and an epoch passes over them twice.
    Documents must be long enough for 2 anchors, so that both runs sample from the same documents.
    """

    settings: SpanDataConfig
    yields = SpanBatch
    content_sum = "ids_sha256"

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        self.max_length = self.settings.max_length
        self.documents = self.open_documents()
        self.rule = SpanRule(
            anchors=self.settings.anchors_per_document,
            positives=self.settings.positives_per_anchor,
            min_span=self.settings.min_span,
            max_span=LONGEST_SPAN if self.settings.max_span == "auto" else self.settings.max_span,
            anchor_placement=self.settings.anchor_placement,
            positive_sampling=self.settings.positive_sampling,
        )
        self.most_anchors = max(self.settings.anchors_per_document, self.settings.match_span_count_of or 0)
        self.passes = passes_per_epoch(self.settings.anchors_per_document, self.settings.match_span_count_of)
        self._check()

    @abstractmethod
    def open_documents(self) -> DocumentSource:
        """Return the source of the documents, without reading them."""

    def source(self) -> RowSource:
        return DocumentRows(self.documents)

    def tokenization(self, tokenizer: Any) -> LongDocuments:
        """Return the tokenization of documents, which also determines the minimum length of stored documents.

        With ``auto``, the store contains every document from which the shortest spans could be sampled.
        """
        rule = self._length_rule()
        smallest = rule._replace(max_span=SHORTEST_SPAN) if self.settings.max_span == "auto" else rule
        shortest = self.settings.min_document_length
        if shortest is None:
            shortest = _shortest(smallest)
        rule_of_store = LengthRule(shortest, self.settings.length_unit, smallest.tokens_needed)
        is_auto = self.settings.max_span == "auto" and self.settings.min_document_length is None
        auto = 0 if is_auto else _shortest(rule._replace(max_span=SHORTEST_SPAN))
        return LongDocuments(tokenizer, rule_of_store, lowercase=self.settings.lowercase, shortest_for_auto=auto)

    def prepare_rows(self, store: TokenStore, tokenizer: Any) -> int:
        lengths = store.token_counts()
        specials, longest = special_tokens(tokenizer, mask_token=self.settings.mask_token), self.max_length
        [prompt] = self.prompts_of(1)
        specials = specials._replace(before=np.array([*specials.before, *prompt_ids(tokenizer, prompt)], np.int64))
        if self.settings.max_span == "auto":
            max_span = choose_max_span(lengths, self._length_rule(), longest - specials.number)
            min_span = min(self.settings.min_span, max(1, max_span // 4))
            self.rule = self.rule._replace(max_span=max_span, min_span=min_span)
            log.info("data.max_span=auto: spans of %d to %d tokens", min_span, max_span)
        self.rows = np.flatnonzero(lengths >= self._min_tokens())
        self._report(int(store.manifest["read"]), len(self.rows), longest)
        self.span_builder = SpanBatchBuilder(
            store,
            specials,
            self.rule,
            seed=self.settings.seed,
            max_length=longest,
            mlm_probability=self.settings.mlm_probability,
            mask_strategy=self.settings.mask_strategy or "bert",
            starts_word=word_start_table(tokenizer) if self.settings.align_to_words else None,
        )
        return len(self.rows)

    def batch(self, pass_index: int, examples: np.ndarray) -> SpanBatch:
        return self.span_builder.build(pass_index, self.rows_at(examples))

    def rows_at(self, places: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows[self.subset[places]])

    def cuts(self) -> list[Truncation]:
        drawn = f"spans of {self.rule.min_span} to {self.rule.max_span} tokens"
        return [Truncation(drawn, self.max_length, self.span_builder.truncated_fraction(self.rows[:CHECKED_DOCUMENTS]))]

    def texts(self) -> Iterator[str]:
        """Yield the texts of the documents, lowercased if the key ``lowercase`` is set."""
        return (text.lower() if self.settings.lowercase else text for text in self.documents.texts())

    def manifest(self) -> dict[str, Any]:
        found = super().manifest()
        return found | {
            "long_enough": len(self.rows),
            "min_tokens": self._min_tokens(),
            "spans": self.rule._asdict(),
            "documents_per_batch": self.batch_size * self.passes,
            "passes_per_epoch": self.passes,
        }

    def held_out(self) -> Sequence[RetrievalData]:
        return self.documents.held_out()

    def _check(self) -> None:
        if self.settings.prompts:
            raise InputError(
                key="data.prompts",
                value=self.settings.prompts,
                expected="null (the backbone's default prompt) or {} (no prompt), because spans have no roles such "
                "as query or document",
                hint="Set data.prompts={}.",
            )
        auto = self.settings.max_span == "auto"
        (self.rule._replace(min_span=1) if auto else self.rule).check()
        shortest, needed = self.settings.min_document_length, self._length_rule().tokens_needed
        if shortest is not None and self.settings.length_unit == "tokens" and not auto and shortest < needed:
            raise InputError(
                key="data.min_document_length",
                value=shortest,
                expected=f"at least {needed} tokens, which {self.most_anchors} anchors of at most "
                f"{self.rule.max_span} tokens require",
                hint=f"For short documents, lower data.max_span (to {shortest * self.rule.max_span // needed}), "
                "or set "
                "data.max_span=auto.",
            )

    def _length_rule(self) -> SpanRule:
        """Return the sampling parameters that determine which documents are long enough.

        The number of anchors is the larger of ``anchors_per_document`` and ``match_span_count_of``, so that a run and
        the run whose number of anchors it matches sample from the same documents.
        """
        return self.rule._replace(anchors=self.most_anchors)

    def _min_tokens(self) -> int:
        """Return the minimum number of tokens that a stored document must have for spans to be sampled from it."""
        shortest = self.settings.min_document_length if self.settings.length_unit == "tokens" else None
        return max(shortest or 0, self._length_rule().tokens_needed)

    def _report(self, read: int, kept: int, longest: int) -> None:
        """Log the number of dropped documents, and whether spans are truncated.

        Raises:
            InputError: No documents are left.
        """
        advice = (
            f"Documents need {self._min_tokens()} tokens for {self.most_anchors} anchors of up to "
            f"{self.rule.max_span} tokens. "
        )
        advice += (
            "Set model=simcse data=sentences to train on short texts."
            if self.settings.max_span == "auto"
            else "Set data.max_span=auto for shorter documents."
        )
        if not kept:
            raise InputError(
                location="data",
                expected="documents that are long enough",
                value=f"none in {read:,} documents",
                hint=advice,
            )
        if kept < read and not self.settings.quiet:
            log.info("dropped %d of %d documents because they are too short. %s", read - kept, read, advice)
        if self.rule.max_span > longest:
            log.warning(
                "spans of up to %d tokens are truncated to %d, the maximum length of a sequence with special tokens; "
                "set data.max_span=%d",
                self.rule.max_span,
                longest,
                longest,
            )


def _shortest(rule: SpanRule) -> int:
    """Return the default minimum document length (``data.min_document_length``)."""
    return max(2 * rule.anchors * rule.max_span, rule.tokens_needed)


def passes_per_epoch(anchors: int, match_span_count_of: int | None) -> int:
    """Return the number of passes over the documents per epoch.

    It is also the factor for the number of documents per batch.
    """
    if match_span_count_of is None:
        return 1
    if match_span_count_of < anchors or match_span_count_of % anchors:
        raise InputError(
            key="data.match_span_count_of",
            value=match_span_count_of,
            expected=f"a multiple of data.anchors_per_document={anchors}",
        )
    return match_span_count_of // anchors


class DocumentRows:
    """Adapter that presents documents to the token store as rows with one text each."""

    width = 1

    def __init__(self, documents: DocumentSource) -> None:
        self.documents, self.fingerprint, self.manifest = documents, documents.fingerprint, documents.manifest

    def __iter__(self) -> Iterator[Record]:
        return (Record((document.text,), None, document.where) for document in self.documents.documents())


class DocumentFiles(StoredData):
    """Base class of data modules that read documents from files, folders, and datasets of the hub."""

    settings: DocumentDataConfig

    def text_source(self) -> TextSource:
        if self.settings.columns is not None and len(self.settings.columns) != 1:
            raise InputError(
                key="data.columns",
                value=list(self.settings.columns),
                expected="the name of one column, the column that contains the text",
            )
        return TextSource(
            self.settings.path,
            document=self.settings.document,
            on_error=self.settings.on_error,
            split=self.settings.split,
            column=self.settings.columns[0] if self.settings.columns else "text",
            hub=HubKeys(self.settings.name, self.settings.revision, self.settings.data_files, self.settings.streaming),
            max_skipped=self.settings.max_skipped,
            encoding=self.settings.encoding,
            strip_html=self.settings.strip_html,
        )


class TextDocuments(DocumentSpans, DocumentFiles):
    """Data module that samples spans from the user's documents."""

    settings: DocumentDataConfig

    def open_documents(self) -> DocumentSource:
        if self.settings.held_out_fraction:
            raise InputError(
                key="data.held_out_fraction",
                value=self.settings.held_out_fraction,
                expected="0, as spans of documents are not held out",
                hint="Set data.held_out_fraction=0, or train on pairs of the documents: set experiment=improve "
                "model=pairs.",
            )
        return self.text_source()


class PydocsDocuments(DocumentSpans):
    """Data module that samples spans from the docstrings of the installed Python packages."""

    settings: ModuleDataConfig

    def open_documents(self) -> DocumentSource:
        return PydocsSource(
            self.cache, self.settings.held_out_every, self.settings.held_out_part, self.settings.min_words
        )
