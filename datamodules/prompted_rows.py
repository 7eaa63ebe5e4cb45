"""Stored triplets put into GenSE's prompts: the four instances of a row as what is read and what is to be written."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

from contracts import Ragged, Seq2SeqBatch
from datamodules.records import Record, RecordSource
from datamodules.row_store import RowStore
from prompts import DIRECTIONS, PromptIds

KINDS = ("entailment", "contradiction", "true", "false")  # of the instances of a row
GENERATION, DISCRIMINATION = (0, 1), (2, 3)
RECORDS_AT_ONCE = 1_000
Part = np.ndarray | int  # ids that are always there, or the column whose ids stand here


class Share(NamedTuple):
    """A share of all premises, by a hash of their text: the same in every file and process."""

    fraction: float
    seed: int
    inside: bool  # False: the rest

    def holds(self, premise: str) -> bool:
        digest = hashlib.blake2b(premise.encode(), digest_size=8, key=str(self.seed).encode()).digest()
        return (int.from_bytes(digest, "big") < self.fraction * 2**64) == self.inside


class PromptedRows:
    """The rows of triplets that are stored: as their three texts; with ``joined`` as six, the sources of the four
    instances and the two texts to write.
    """

    def __init__(
        self, records: RecordSource, share: Share | None, joined: PromptIds | None, source_length: int
    ) -> None:
        self.records, self.share, self.joined, self.source_length = records, share, joined, source_length
        self.width = 3 if joined is None else 6
        self.kept = 0

    def __iter__(self) -> Iterator[Record]:
        self.kept = 0
        shared = self._shared()
        while records := list(islice(shared, RECORDS_AT_ONCE)):
            self.kept += len(records)
            yield from records if self.joined is None else self._joined(records, self.joined)

    def fingerprint(self) -> dict[str, Any]:
        """What names the content without reading it; JSON types only."""
        found: dict[str, Any] = {"records": self.records.fingerprint(), "share": self.share and list(self.share)}
        if self.joined is not None:
            found["joined"] = [self.joined.prompts.to_json(), self.source_length]
        return found

    def manifest(self) -> dict[str, Any]:
        return self.records.manifest() | {"rows": self.kept, "share_of_premises": self.share and self.share._asdict()}

    def _shared(self) -> Iterator[Record]:
        return (one for one in self.records if self.share is None or self.share.holds(one.texts[0]))

    def _joined(self, records: Sequence[Record], prompts: PromptIds) -> Iterator[Record]:
        premises, *written = (list(column) for column in zip(*(record.texts for record in records), strict=True))
        columns = [prompts.generation_texts(name, premises, self.source_length) for name in DIRECTIONS]
        columns += [prompts.discrimination_texts(premises, other, self.source_length) for other in written]
        for record, *texts in zip(records, *columns, *written, strict=True):
            yield record._replace(texts=tuple(texts))


class Templates:
    """``batch(store, rows, kinds)`` has the ids that `PromptIds` gives, made of those that are stored."""

    def __init__(self, prompts: PromptIds, source_length: int, target_length: int) -> None:
        self.end = np.array(prompts.end, np.int64)
        self.source_length, self.room = source_length, target_length - len(self.end)
        parts = {name: [np.array(ids, np.int64) for ids in pieces] for name, pieces in prompts.parts.items()}
        prefix, between, suffix, yes, no = parts["discrimination"]
        self.targets: list[Part] = [1, 2, yes, no]
        self.sources: list[list[Part]]
        if prompts.prompts.assembly == "string":
            self.sources = [[0], [1], [2], [3]]
            self.targets[:2] = [4, 5]
            self.source_length = np.iinfo(np.int64).max  # the sentences were cut before they were joined
        else:
            generation: list[list[Part]] = [[parts[name][0], 0, parts[name][1]] for name in DIRECTIONS]
            self.sources = [*generation, [prefix, 0, between, 1, suffix], [prefix, 0, between, 2, suffix]]

    def batch(self, store: RowStore, rows: np.ndarray, kinds: np.ndarray) -> Seq2SeqBatch:
        """(N,) rows and kinds -> N instances."""
        sources, targets = list[np.ndarray](), list[np.ndarray]()
        for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
            parts = [self._ids(store, row, part, self.source_length) for part in self.sources[kind]]
            sources.append(np.concatenate([*parts, self.end]))
            targets.append(np.concatenate([self._ids(store, row, self.targets[kind], self.room), self.end]))
        return Seq2SeqBatch(_ragged(sources), _ragged(targets), kinds, rows)

    def _ids(self, store: RowStore, row: int, part: Part, most: int) -> np.ndarray:
        return store.text(row, part)[:most] if isinstance(part, int) else part


def _ragged(sequences: list[np.ndarray]) -> Ragged:
    ids = np.concatenate(sequences).astype(np.int64)
    return Ragged(torch.from_numpy(ids), np.fromiter(map(len, sequences), np.int64, len(sequences)))
