"""Make pairs from unlabeled documents: title and passage, two neighboring passages, or two spans of a passage.

Each passage gives up to three pairs: the title or headings above it and the passage; the preceding passage and the
passage; and two spans of it, sampled as in DeCLUTR (Giorgi et al. 2021), with the shorter one as the anchor.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from contrastive_encoders.core import InputError, RetrievalData, TripletBatch
from contrastive_encoders.datamodules.data_configs import DataConfig, DocumentDataConfig
from contrastive_encoders.datamodules.documents import DocumentFiles
from contrastive_encoders.datamodules.row_datamodules import TripletRows
from contrastive_encoders.datamodules.sampling.held_out import HeldOutOptions, HeldOutSplit
from contrastive_encoders.datamodules.sampling.spans import SpanRule, sample_spans
from contrastive_encoders.datamodules.sources.hub_datasets import names_of
from contrastive_encoders.datamodules.sources.raw_documents import RawDocument
from contrastive_encoders.datamodules.sources.records import Record
from contrastive_encoders.datamodules.sources.row_schemas import QA
from contrastive_encoders.datamodules.sources.text_source import TextSource
from contrastive_encoders.datamodules.store.token_store import RowSource, TokenStore
from contrastive_encoders.datamodules.store.tokenization import WholeRows

VERSION = 4  # part of the store's key: increase it when the same documents would yield different pairs
SHORTEST, LONGEST = 20, 120  # words per passage
SHORTEST_SPAN = 5  # in words
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
LETTERS = re.compile(r"[^\W\d_]{2}")
TITLES, NEIGHBORS, SPANS = "title and passage", "neighboring passages", "spans of a passage"  # kinds of pairs
QUERY_KINDS = {TITLES: "titles", NEIGHBORS: "neighboring passages", SPANS: "spans"}  # kind of pair -> its anchors


class DocumentPassage(NamedTuple):
    """Consecutive sentences of a document, and the heading above them ("" if there is none)."""

    heading: str
    text: str


class PassagePairs(DocumentFiles, TripletRows):
    """Data module of pairs from the user's documents, for objectives that train on pairs. The keys of spans are not
    used.
    """

    settings: DocumentDataConfig
    kind = QA

    def __init__(self, settings: DataConfig) -> None:
        super().__init__(settings)
        self.rows = PassageRows(self.text_source())
        options = HeldOutOptions((1,), TITLES, self.rows.corpus, self.settings.max_held_out_documents)
        share = self.settings.held_out_fraction
        self.held_out_split = HeldOutSplit(self.rows, share, self.cache, options) if share else None

    def source(self) -> RowSource:
        return self.held_out_split or self.rows

    def tokenization(self, tokenizer: Any) -> WholeRows:
        return WholeRows(tokenizer, labeled=1)

    def make_batch(self, store: TokenStore, rows: np.ndarray) -> TripletBatch:
        """Make a batch from N rows of the token store. The pairs of a passage form a group, so they are not negatives
        of each other.
        """
        assert store.labels is not None
        return super().make_batch(store, rows)._replace(groups=torch.from_numpy(store.labels[rows].astype(np.int64)))

    def held_out(self) -> Sequence[RetrievalData]:
        tasks = self.held_out_split.tasks(self.task_prompts()) if self.held_out_split else []
        return [task._replace(query_kind=QUERY_KINDS[task.query_kind]) for task in tasks]


class PassageRows:
    """Adapter that makes pairs from documents, and presents them to the token store as rows with two texts each.

    The label of a row is the number of its passage.
    """

    width = 2

    def __init__(self, documents: TextSource) -> None:
        self.documents = documents
        self.made = Counter[str]()
        self.passages = self.number_of_documents = self.without_pairs = 0

    def __iter__(self) -> Iterator[Record]:
        self.made, self.passages, self.number_of_documents, self.without_pairs = Counter(), 0, 0, 0
        for document in self.documents.documents():
            passages = passages_of(document)
            pairs = list(pairs_of(passages))
            self.number_of_documents += 1
            self.without_pairs += not pairs
            for place, kind, pair in pairs:
                self.made[kind] += 1
                yield Record(pair, float(self.passages + place), document.where, kind)
            self.passages += len(passages)
        if not self.made:
            raise InputError(
                location=names_of(self.documents.places()),
                expected=f"documents with a title or at least {2 * SHORTEST} words, from which pairs can be made",
                hint="Use longer documents, or train on existing pairs: set data=qa data.path=FILE.",
            )

    def corpus(self, kind: str) -> Iterator[str]:
        """Yield the texts to rank for the anchors of pairs of the given kind: all spans, or all passages."""
        for document in self.documents.documents():
            passages = passages_of(document)
            if kind == SPANS:
                yield from (pair[1] for _, of, pair in pairs_of(passages) if of == SPANS)
            else:
                yield from (passage.text for passage in passages)

    def fingerprint(self) -> dict[str, Any]:
        return {**self.documents.fingerprint(), "pairs": VERSION}

    def manifest(self) -> dict[str, Any]:
        return {
            **self.documents.manifest(),
            "documents": self.number_of_documents,
            "documents_without_pairs": self.without_pairs,
            "passages": self.passages,
            "pairs_by_kind": dict(self.made),
        }


def passages_of(
    document: RawDocument, *, shortest: int = SHORTEST, longest: int = LONGEST, overlap: int = 0
) -> list[DocumentPassage]:
    """Split each section of a document into passages of ``shortest`` to ``longest`` words.

    Paragraphs are merged, or split between sentences. A shorter piece is merged with the preceding text of its section.
    A passage begins with the last sentences of the preceding passage in its section, as many as have at most
    ``overlap`` words in total.
    """
    found = list[DocumentPassage]()
    for headings, text in document.sections():
        heading = ": ".join(dict.fromkeys(" ".join(one.split()) for one in headings))
        pieces = list[list[list[str]]]()  # words of the sentences of each piece
        for sentence in (words for one in SENTENCE_END.split(text) if (words := one.split())):
            for piece in (sentence[at : at + longest] for at in range(0, len(sentence), longest)):
                if pieces and words_in(pieces[-1]) + len(piece) <= longest:
                    pieces[-1].append(piece)
                else:
                    pieces.append([piece])
        if len(pieces) > 1 and words_in(pieces[-1]) < shortest:
            last = pieces.pop()
            pieces[-1] += last
        repeated = [last_sentences(piece, overlap) for piece in pieces]
        found += [
            DocumentPassage(heading, " ".join(word for sentence in [*before, *piece] for word in sentence))
            for before, piece in zip([[], *repeated], pieces, strict=False)
        ]
    return found


def words_in(sentences: Sequence[Sequence[str]]) -> int:
    return sum(map(len, sentences))


def last_sentences(sentences: Sequence[list[str]], most: int) -> list[list[str]]:
    """Return the longest sequence of sentences at the end of a passage that has at most ``most`` words."""
    begin = len(sentences)
    while begin and words_in(sentences[begin - 1 :]) <= most:
        begin -= 1
    return list(sentences[begin:])


def pairs_of(passages: Sequence[DocumentPassage]) -> Iterator[tuple[int, str, tuple[str, str]]]:
    """Yield all pairs of a document, each as the index of its passage, its kind, and (anchor, positive)."""
    for place, (heading, text) in enumerate(passages):
        words = text.split()
        if LETTERS.search(heading):
            yield place, TITLES, (heading, text)
        if len(words) < SHORTEST:
            continue
        before = passages[place - 1] if place else DocumentPassage("", "")
        if before.heading == heading and len(before.text.split()) >= SHORTEST:
            yield place, NEIGHBORS, (before.text, text)
        if len(words) >= 2 * SHORTEST:
            yield place, SPANS, spans_of(words)


def spans_of(words: Sequence[str]) -> tuple[str, str]:
    """Return two random spans of a passage, starting with the shorter one. The draw depends on the words only, so it is
    the same on every machine and in every run.
    """
    seed = hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    rule = SpanRule(1, 1, SHORTEST_SPAN, len(words) // 2, "uniform", "adjacent")
    drawn = sample_spans(len(words), rule, np.random.default_rng(int.from_bytes(seed)))
    spans = [
        words[start : start + length]
        for start, length in (
            (drawn.positive_starts[0], drawn.positive_lengths[0]),
            (drawn.anchor_starts[0], drawn.anchor_lengths[0]),
        )
    ]
    short, long = sorted(spans, key=len)
    return " ".join(short), " ".join(long)
