"""Tokenization of the rows of a source, including normalization and the selection of the rows to store.

`WholeRows` reads rows of texts unchanged. `LongDocuments` normalizes documents and drops short ones.
"""

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.datamodules.sources.records import Record

Texts = tuple[str, ...]  # the texts of a row


class TokenizedRows(NamedTuple):
    """Token ids of those rows of a batch that are kept."""

    ids: np.ndarray  # (tokens,) in the dtype of the store, all texts concatenated
    lengths: np.ndarray  # (kept rows * texts per row,) int64
    is_kept: np.ndarray  # (rows,) bool: kept rows among the input rows
    counts: dict[str, int]  # counts over the input rows
    longest: tuple[int, int] = (0, 0)  # length and position of the longest input document, if documents are measured
    enough_for_auto: int = 0  # input documents that are long enough for `data.max_span=auto`


class RowTokenizer(ABC):
    """Base class of row tokenizations, which tokenize rows and select the rows to store.

    An instance counts the rows of one store.

    Each worker has a copy and calls `keep` only. The driver calls `add`, so the driver has the counts.
    """

    unit: str  # name of a row in messages
    counts: dict[str, int]
    special_tokens_are_text = False

    def __init__(self, tokenizer: Any, *, labeled: int = 0) -> None:
        self.labeled = labeled  # labels per row
        self.serialized = serialize_tokenizer(tokenizer)
        self.dtype = np.dtype("<u2") if len(tokenizer) <= 2**16 else np.dtype("<u4")

    @cached_property
    def backend(self) -> Tokenizer:
        """The tokenizer, with truncation and padding disabled.

        It is created on first access, since opening a store does not need it.
        """
        backend = Tokenizer.from_str(self.serialized)
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = self.special_tokens_are_text
        return backend

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle. Leave out the hash, which cannot be pickled, and the backend, which would lose
        its handling of special tokens.
        """
        return {name: value for name, value in self.__dict__.items() if name not in ("backend", "text_hash")}

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize texts.

        Returns:
            The (tokens,) ids of all texts, concatenated, in the dtype of the store, and the (texts,) int64 lengths.
        """
        lists = [encoding.ids for encoding in self.backend.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        return np.fromiter(itertools.chain.from_iterable(lists), self.dtype, int(lengths.sum())), lengths

    @abstractmethod
    def keep(self, rows: Sequence[Texts]) -> TokenizedRows:
        """Tokenize a batch of rows and choose the rows to store. The result depends on the texts only."""

    def add(self, records: Sequence[Record], kept: TokenizedRows) -> None:
        """Count a batch of rows and the rows that are kept. Batches must arrive in the order of the source."""
        for name, number in kept.counts.items():
            self.counts[name] += number

    @abstractmethod
    def spellings(self, sentences: Sequence[str]) -> list[list[str]]:
        """Return, for each sentence, the spellings in which it may occur in a text. The first spelling determines its
        length.
        """

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that the token ids depend on, except the source."""
        content = self.serialized[self.serialized.index('"added_tokens"') :]  # after "truncation" and "padding"
        return {"tokenizer": hashlib.sha256(content.encode()).hexdigest()}

    def account(self) -> dict[str, Any]:
        """Return the row counts for the manifest of the store."""
        return dict(self.counts)

    @abstractmethod
    def summary(self, kept: int, tokens: int, source: dict[str, Any]) -> str:
        """Return a log line about the dropped rows. ``source`` is the manifest of the source."""

    @abstractmethod
    def nothing_kept(self, source: dict[str, Any]) -> InputError:
        """Return the error for data of which no row was kept."""


class WholeRows(RowTokenizer):
    """Tokenization of unmodified rows: the ids of ``tokenizer(text)`` without the special tokens at both ends.

    A row is dropped if one of its texts has no tokens. The exception is "", which fills up rows with lists of texts.
    """

    unit = "rows"

    def __init__(self, tokenizer: Any, *, labeled: int = 0) -> None:
        super().__init__(tokenizer, labeled=labeled)
        self.counts = {"without_tokens": 0}

    def keep(self, rows: Sequence[Texts]) -> TokenizedRows:
        flat = [text for texts in rows for text in texts]
        ids, lengths = self.encode(flat)
        is_filler = np.fromiter((not text for text in flat), bool, len(flat))
        kept = np.all(((lengths > 0) | is_filler).reshape(len(rows), -1), axis=1)
        if not kept.all():
            texts = np.repeat(kept, len(lengths) // len(kept))
            ids, lengths = ids[np.repeat(texts, lengths)], lengths[texts]
        return TokenizedRows(ids, lengths, kept, {"without_tokens": int((~kept).sum())})

    def spellings(self, sentences: Sequence[str]) -> list[list[str]]:
        """Return two spellings of each sentence: as an entire text, and inside a longer text."""
        return [list(sentences), [f" {sentence}" for sentence in sentences]]

    def summary(self, kept: int, tokens: int, source: dict[str, Any]) -> str:
        return f"kept {kept} rows, {tokens} tokens{describe_skipped(source, self.counts['without_tokens'])}"

    def nothing_kept(self, source: dict[str, Any]) -> InputError:
        return InputError(
            location="data",
            expected="rows whose texts all have tokens",
            value=f"none in {source.get('rows', 0):,} rows",
            hint="The vocabulary of the backbone may be for another script: choose another backbone.",
        )


class LengthRule(NamedTuple):
    """Minimum length of the documents to store.

    With the unit ``tokens``, a document has at least ``min_length`` tokens. With the unit ``words``, it has more than
    ``min_length`` words separated by whitespace, as in DeCLUTR's script, and at least ``min_tokens`` tokens.
    """

    min_length: int
    unit: Literal["tokens", "words"]
    min_tokens: int  # tokens that the sampler needs; only used with the unit "words"

    def describe(self) -> str:
        if self.unit == "tokens":
            return f"at least {self.min_length} tokens"
        return f"more than {self.min_length} words and at least {self.min_tokens} tokens"


class LongDocuments(RowTokenizer):
    """Tokenization of normalized documents. A document is a row with one text.

    Only sufficiently long documents are stored.

    A special token that occurs literally in a text is tokenized as plain text.

    Args:
        shortest_for_auto: Minimum length of a document that ``data.max_span=auto`` considers, in the unit of the rule;
            0 if it is set already.
    """

    unit = "documents"
    special_tokens_are_text = True

    def __init__(self, tokenizer: Any, rule: LengthRule, *, lowercase: bool, shortest_for_auto: int = 0) -> None:
        super().__init__(tokenizer)
        self.rule, self.lowercase, self.shortest_for_auto = rule, lowercase, shortest_for_auto
        self.unknown: int | None = tokenizer.unk_token_id
        self.specials = np.array(sorted(set(tokenizer.all_special_ids) - {self.unknown}), np.int64)
        # literal_specials: "<mask>" and similar strings in the text that the vocabulary could not spell
        self.counts = dict.fromkeys(("read", "too_short", "too_few_tokens", "words", "literal_specials"), 0)
        self.longest, self.longest_where = 0, ""  # over all documents read, in the unit of the rule
        self.enough_for_auto = 0  # documents that are long enough for `data.max_span=auto`
        self.text_hash = hashlib.sha256()  # over all documents read, each followed by a zero byte

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids, lengths, _ = self._without_specials(*super().encode(texts))
        return ids, lengths

    def keep(self, rows: Sequence[Texts]) -> TokenizedRows:
        texts = [normalize_text(text, self.lowercase) for (text,) in rows]
        words = np.array([text.count(" ") for text in texts], np.int64)  # one space before each word
        in_words = self.rule.unit == "words"
        kept = words > self.rule.min_length if in_words else np.ones(len(rows), dtype=bool)
        ids, lengths = super().encode(list(itertools.compress(texts, kept)))
        measured = words if in_words else lengths
        longest = int(measured.max()), int(measured.argmax())
        enough_for_auto = int((measured >= self.shortest_for_auto).sum())
        ids, lengths, specials = self._without_specials(ids, lengths)
        long_enough = lengths >= (self.rule.min_tokens if in_words else self.rule.min_length)
        counts = {
            "read": len(rows),
            "too_short": int((~kept if in_words else ~long_enough).sum()),
            "too_few_tokens": int((~long_enough).sum()) if in_words else 0,
            "words": int(words[kept][long_enough].sum()),
            "literal_specials": int(specials[long_enough].sum()),
        }
        kept[kept] = long_enough
        return TokenizedRows(
            ids[np.repeat(long_enough, lengths)], lengths[long_enough], kept, counts, longest, enough_for_auto
        )

    def add(self, records: Sequence[Record], kept: TokenizedRows) -> None:
        super().add(records, kept)
        for record in records:
            self.text_hash.update(record.texts[0].encode() + b"\0")
        length, place = kept.longest
        self.enough_for_auto += kept.enough_for_auto
        if length > self.longest:
            self.longest, self.longest_where = length, records[place].where

    def _without_specials(self, ids: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Replace ids of special tokens in texts by the unknown token, or drop them. Also return their number in each
        text.

        A Unigram tokenizer may tokenize "<s>" as the special token.
        """
        special = np.isin(ids, self.specials)
        numbers = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[special], minlength=len(lengths))
        if self.unknown is None:
            return ids[~special], lengths - numbers, numbers
        ids[special] = self.unknown
        return ids, lengths, numbers

    def spellings(self, sentences: Sequence[str]) -> list[list[str]]:
        return [[normalize_text(sentence, self.lowercase) for sentence in sentences]]

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "lowercase": self.lowercase, "rule": self.rule._asdict()}

    def account(self) -> dict[str, Any]:
        return {
            **self.counts,
            "longest": self.longest,
            "longest_unit": self.rule.unit,
            "longest_where": self.longest_where,
            "text_sha256": self.text_hash.hexdigest(),
            "lowercase": self.lowercase,
        }

    def summary(self, kept: int, tokens: int, source: dict[str, Any]) -> str:
        return f"kept {kept} of {self.counts['read']} documents, {tokens} tokens"

    def nothing_kept(self, source: dict[str, Any]) -> InputError:
        remedy = "Set model=simcse data=sentences to train on short texts."
        if self.shortest_for_auto and 2 * self.enough_for_auto >= self.counts["read"]:
            remedy = "Set data.max_span=auto data.min_document_length=null."
        return InputError(
            location="data",
            expected=f"documents of {self.rule.describe()}",
            value=f"none in {self.counts['read']:,} documents; the longest has {self.longest} {self.rule.unit} "
            f"({self.longest_where})",
            hint=f"{remedy} If each text is only a piece of a document, use one line per document, or one file per "
            "document in a directory.",
        )


def serialize_tokenizer(tokenizer: Any) -> str:
    """Serialize a fast tokenizer to JSON. A worker restores it without importing transformers.

    Raises:
        InputError: The tokenizer is not a fast one.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            key="backbone",
            value=type(tokenizer).__name__,
            expected="a fast tokenizer (one with a tokenizer.json)",
            hint="Convert it: AutoTokenizer.from_pretrained(..., use_fast=True).",
        )
    return str(tokenizer.backend_tokenizer.to_str())


def tokenize_rows(tokenization: RowTokenizer, tasks: Iterator[WorkItem]) -> Iterator[tuple[int, TokenizedRows]]:
    """Yield the tokenized rows of each task, in order. A thread tokenizes while the next task is fetched."""
    with ThreadPoolExecutor(1) as executor:
        pending = deque[tuple[int, Future[TokenizedRows]]]()
        for task in tasks:
            pending.append((task.number, executor.submit(tokenization.keep, task.payload)))
            if len(pending) == 2:
                number, kept = pending.popleft()
                yield number, kept.result()
        for number, kept in pending:
            yield number, kept.result()


def normalize_text(text: str, lowercase: bool) -> str:
    """Normalize a text as DeCLUTR's reader does.

    Whitespace is collapsed, and the text starts with one space, so that the first word is tokenized like any other.
    """
    return " " + " ".join((text.lower() if lowercase else text).split())


def describe_skipped(manifest: dict[str, Any], without_tokens: int = 0) -> str:
    """Return a log message about the unused rows of a source and the reasons."""
    counts = {
        **manifest.get("left_out", {}),
        **{fault: manifest.get(fault, 0) for fault in ("empty", "undecodable", "malformed")},
        "without a token": without_tokens,
        **{f"with split={name!r}": number for name, number in manifest.get("other_splits", {}).items()},
    }
    found = [f"{number} {reason}" for reason, number in counts.items() if number]
    return f"; left out {', '.join(found)}" if found else ""
