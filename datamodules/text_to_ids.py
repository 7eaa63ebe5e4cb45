"""Documents to flat token ids on disk: normalise, tokenise in parallel, drop what is too short, count everything."""

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer

from contracts import InputError
from datamodules.sources import Document

BATCH_CHARACTERS = 4_000_000  # what one call to the parallel tokenizer gets; a few hundred MB at most while it runs


class LengthRule(NamedTuple):
    """Which documents are long enough."""

    min_length: int
    unit: Literal["tokens", "words"]
    min_tokens: int  # what the sampler needs besides; only for words

    def describe(self) -> str:
        if self.unit == "tokens":
            return f"at least {self.min_length} tokens"
        return f"more than {self.min_length} words and at least {self.min_tokens} tokens"


class WrittenDocuments(NamedTuple):
    """What became of the documents; goes into the manifest of the store."""

    read: int
    kept: int
    too_short: int  # for the rule
    too_few_tokens: int  # long enough in words, not for the sampler
    tokens: int  # of the documents kept, as are the words
    words: int
    longest: int  # of all documents read, in longest_unit
    longest_unit: str
    longest_where: str
    literal_specials: int  # "<mask>" and its like in the text, where the vocabulary could not spell them
    dtype: str
    text_sha256: str  # of all documents read, each followed by a zero byte
    ids_sha256: str  # of ids.bin


class PlainBackend(NamedTuple):
    """A tokenizer that adds, cuts and pads nothing, and has no special tokens for what stands in a text."""

    tokenizer: Tokenizer
    specials: np.ndarray  # (specials,) sorted ids that must not come out of a text; the unknown token may
    unknown: int | None
    dtype: np.dtype[Any]

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """The ids of each text, (tokens,) of ``dtype``."""
        encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=self.dtype) for encoding in encodings]

    def replace_specials(self, ids: np.ndarray) -> tuple[np.ndarray, int]:
        """The ids with special ones made unknown, and how many. A Unigram vocabulary spells "<s>" as itself."""
        special = np.isin(ids, self.specials)
        number = int(special.sum())
        if number == 0:
            return ids, 0
        return (
            ids[~special] if self.unknown is None else np.where(special, self.unknown, ids).astype(ids.dtype)
        ), number


def plain_backend(tokenizer: Any) -> PlainBackend:
    """A copy of the fast tokenizer's backend: whoever else uses the tokenizer sees no change."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    unknown = tokenizer.unk_token_id
    specials = sorted(set(tokenizer.all_special_ids) - {unknown})
    dtype = np.dtype("<u2") if len(tokenizer) <= 2**16 else np.dtype("<u4")
    return PlainBackend(backend, np.array(specials, dtype=np.int64), unknown, dtype)


def normalised(text: str, lowercase: bool) -> str:
    """As DeCLUTR's reader: white space collapsed, one space in front, so that the first word is like any other."""
    return " " + " ".join((text.lower() if lowercase else text).split())


def write_documents(
    documents: Iterable[Document],
    backend: PlainBackend,
    folder: Path,
    rule: LengthRule,
    *,
    lowercase: bool,
    quiet: bool,
) -> WrittenDocuments:
    """Writes ``ids.bin`` and ``offsets.npy`` into the folder. Memory: one batch, and the offsets."""
    if rule.unit not in ("tokens", "words"):
        raise InputError(f"data.length_unit: wanted tokens or words, got {rule.unit!r}")
    with (folder / "ids.bin").open("wb") as file, tokenising_bar(quiet) as progress:
        task = progress.add_task("tokenising", total=None, rate="")
        writer = _Writer(file, backend, rule)
        for batch in _batches(documents):
            writer.write(batch, lowercase)
            rate = writer.tokens / max(progress.tasks[0].elapsed or 0, 1e-3)
            progress.update(task, rate=f"{writer.read:,} documents, {writer.tokens:,} tokens kept, {rate:,.0f}/s")
    np.save(folder / "offsets.npy", np.frombuffer(writer.offsets, dtype=np.int64))
    return writer.result()


class _Writer:
    def __init__(self, file: Any, backend: PlainBackend, rule: LengthRule) -> None:
        self.file, self.backend, self.rule = file, backend, rule
        self.offsets = array("q", [0])
        self.read = self.too_short = self.too_few_tokens = self.words = self.literal_specials = self.longest = 0
        self.longest_where = ""
        self.text_hash, self.ids_hash = hashlib.sha256(), hashlib.sha256()

    @property
    def tokens(self) -> int:
        return self.offsets[-1]

    def write(self, batch: list[Document], lowercase: bool) -> None:
        texts, words = [], []
        for document in batch:
            self.text_hash.update(document.text.encode() + b"\0")
            text = normalised(document.text, lowercase)
            number = text.count(" ")  # a space in front of each word
            if self.rule.unit == "words":
                self._measure(number, document)
                if number <= self.rule.min_length:
                    self.too_short += 1
                    continue
            texts.append(text)
            words.append(number)
        self.read += len(batch)
        all_ids = self.backend.encode(texts)
        if self.rule.unit == "tokens":
            for ids, document in zip(all_ids, batch, strict=True):
                self._measure(len(ids), document)
        for ids, number in zip(all_ids, words, strict=True):
            self._write_one(ids, number)

    def _measure(self, length: int, document: Document) -> None:
        if length > self.longest:
            self.longest, self.longest_where = length, document.where

    def _write_one(self, ids: np.ndarray, words: int) -> None:
        ids, literal_specials = self.backend.replace_specials(ids)
        if self.rule.unit == "tokens" and len(ids) < self.rule.min_length:
            self.too_short += 1
        elif self.rule.unit == "words" and len(ids) < self.rule.min_tokens:
            self.too_few_tokens += 1
        else:
            self.literal_specials += literal_specials
            data = ids.tobytes()
            self.file.write(data)
            self.ids_hash.update(data)
            self.offsets.append(self.offsets[-1] + len(ids))
            self.words += words

    def result(self) -> WrittenDocuments:
        return WrittenDocuments(
            read=self.read,
            kept=len(self.offsets) - 1,
            too_short=self.too_short,
            too_few_tokens=self.too_few_tokens,
            tokens=self.tokens,
            words=self.words,
            longest=self.longest,
            longest_unit=self.rule.unit,
            longest_where=self.longest_where,
            literal_specials=self.literal_specials,
            dtype=self.backend.dtype.str,
            text_sha256=self.text_hash.hexdigest(),
            ids_sha256=self.ids_hash.hexdigest(),
        )


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def tokenising_bar(quiet: bool) -> Progress:
    """Drawn on a terminal only."""
    columns = (SpinnerColumn(), TextColumn("{task.description} {task.fields[rate]}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty())
