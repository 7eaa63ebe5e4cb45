"""Rows held out from training as a retrieval task.

Rows that share a text stay together, and rows that nearly repeat one that is held out are left out of training.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from contracts import InputError, Prompted, RetrievalTask
from datamodules.near_duplicates import NearCopies, words_of
from datamodules.sources.records import Record
from datamodules.store.token_store import RowSource
from storage.atomic import build_once

VERSION = 2  # part of the key: raise it when the same rows would be held out otherwise
MOST_QUERIES = 1_000  # rows of the task: more would cost time and hardly narrow the interval
FEWEST_QUERIES = 6  # of five, no permutation test is below 0.05
MOST_GROUPED = 200_000  # rows among which the task is chosen
NAME = "held_out"
PLACE_KEYS = 1 << 64  # keys of places lie above those of texts, which name a group


class AllButHeldOut:
    """The rows of ``source`` but for a ``share`` of the first `MOST_GROUPED`, at most `MOST_QUERIES`.

    Rows are of one group if they come from the same place (a document), or if they have an equal text in one of
    ``columns``; upper case and punctuation do not count. Groups are held out as a whole, in an order that depends on
    their texts alone, so runs with other seeds have the same task. Where no groups make up half of the share, as of one
    long document, a place no longer counts; and where texts are shared by that many rows, as the answers of questions
    often are, equal anchors alone make a group.
    """

    @classmethod
    def of(
        cls, source: RowSource, share: float, cache: Path, columns: Sequence[int] = (0, 1)
    ) -> "AllButHeldOut | None":
        """None where the share is 0."""
        return cls(source, share, cache, columns) if share else None

    def __init__(self, source: RowSource, share: float, cache: Path, columns: Sequence[int] = (0, 1)) -> None:
        if not 0 < share <= 0.5:
            raise InputError(f"data.held_out_share: wanted a share of the rows from 0 (none) to 0.5, got {share}.")
        self.source, self.share, self.columns = source, share, tuple(columns)
        self.width = source.width
        digest = hashlib.sha256(json.dumps(self.fingerprint(), sort_keys=True).encode()).hexdigest()[:16]
        self.directory = cache / f"held-out-{digest}"

    def __iter__(self) -> Iterator[Record]:
        self._prepare()
        left_out = set(np.load(self.directory / "left_out.npy").tolist())
        return (record for number, record in enumerate(self.source) if number not in left_out)

    def fingerprint(self) -> dict[str, Any]:
        ours = {"version": VERSION, "share": self.share, "columns": self.columns}
        return {**self.source.fingerprint(), NAME: ours}

    def manifest(self) -> dict[str, Any]:
        self._prepare()
        counts = json.loads((self.directory / "counts.json").read_text(encoding="utf-8"))
        return {**self.source.manifest(), NAME: counts}

    def tasks(self, prompts: Sequence[str]) -> list[RetrievalTask]:
        """Return the task in which every anchor must find its positives among all other texts; none of a few rows.

        ``prompts`` are those of the columns; all texts but the anchors have that of the second.
        """
        self._prepare()
        rows = json.loads((self.directory / "rows.json").read_text(encoding="utf-8"))
        queries, documents = dict[str, dict[int, float]](), dict[str, int]()
        for anchor, positive, *negatives in rows:
            relevant = queries.setdefault(anchor, {})
            relevant[documents.setdefault(positive, len(documents))] = 1.0
            for negative in negatives:
                documents.setdefault(negative, len(documents))
        gains = list(queries.values())
        one_each = len(documents) == len(gains) and all(set(gain) == {row} for row, gain in enumerate(gains))
        if not queries:
            return []
        sides = Prompted(queries, prompts[0]), Prompted(documents, prompts[1])
        return [RetrievalTask(NAME, *sides, None if one_each else gains)]

    def _prepare(self) -> None:
        build_once(self.directory, lambda folder: (folder / "counts.json").is_file(), self._build)

    def _build(self, folder: Path) -> None:
        numbers, columns = self._chosen()
        held = {row: record for row, record in enumerate(self.source) if row in numbers}
        rows, made_as = _rows_of_task(list(held.values()))
        queries, documents = {row[0] for row in rows}, {text for row in rows for text in row[1:]}
        if len(queries) < FEWEST_QUERIES or len(documents) < 2:
            held, rows, queries, documents = {}, [], set(), set()
        texts = [record.texts[column] for record in held.values() for column in columns]
        known = {key for record in held.values() for key in _keys(record.texts, columns)}
        near = NearCopies(texts)
        left_out = [
            row
            for row, record in enumerate(self.source)
            if row not in held
            and (
                not known.isdisjoint(_keys(record.texts, columns))
                or any(near.has(words_of(record.texts[column])) for column in columns)
            )
        ]
        np.save(folder / "left_out.npy", np.array(sorted([*held, *left_out]), np.int64))
        (folder / "rows.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        counts = {
            "rows": len(held),
            "queries": len(queries),
            "documents": len(documents),
            "near_copies_left_out": len(left_out),
            "kept_apart_by": "anchors" if columns == (0,) else "texts",
            **({"scored": made_as} if made_as else {}),
        }
        (folder / "counts.json").write_text(json.dumps(counts), encoding="utf-8")

    def _chosen(self) -> tuple[set[int], tuple[int, ...]]:
        """The rows of the task, and the columns by whose texts they were grouped."""
        chosen, columns = list[int](), self.columns
        for columns, of_places in ((self.columns, True), ((0, 1), False), ((0,), False)):
            groups = Groups()
            for record in islice(self.source, MOST_GROUPED):
                place = [PLACE_KEYS + _hashed(record.where)] if of_places else []
                groups.add([*place, *_keys(record.texts, columns)])
            wanted = min(MOST_QUERIES, round(self.share * groups.rows))
            chosen = groups.up_to(wanted)
            if 2 * len(chosen) >= wanted:
                break
        return set(chosen), columns


class Groups:
    """Rows joined by keys that they share."""

    def __init__(self) -> None:
        self.rows = 0
        self.parents = dict[int, int]()  # key -> another one of its group, itself at the root
        self.key_of = list[int]()

    def add(self, keys: Sequence[int]) -> None:
        roots = sorted({self._root(key) for key in keys})
        for root in roots:
            self.parents[root] = roots[0]
        self.key_of.append(roots[0])
        self.rows += 1

    def up_to(self, most: int) -> list[int]:
        """Rows of whole groups, ``most`` of them or fewer. Which ones depends on the keys alone."""
        members = defaultdict[int, list[int]](list)
        for row, key in enumerate(self.key_of):
            members[self._root(key)].append(row)
        chosen = list[int]()
        for root in sorted(members):  # the smallest hash of a group's texts
            if len(chosen) + len(members[root]) <= most:
                chosen += members[root]
        return chosen

    def _root(self, key: int) -> int:
        parent = self.parents.setdefault(key, key)
        while parent != self.parents[parent]:
            self.parents[parent] = self.parents[self.parents[parent]]
            parent = self.parents[parent]
        return parent


def _rows_of_task(held: Sequence[Record]) -> tuple[list[list[str]], str]:
    """Texts of the rows that are scored, and as what they were made: the most frequent kind of pair alone, since a
    passage has in it what its other pairs ask for.

    A text is asked or found, never both: what is equal to a query would be found before all else.
    """
    kinds = Counter(record.made_as for record in held)
    made_as = max(kinds, key=lambda kind: kinds[kind], default="")
    asked, found, rows = set[int](), set[int](), list[list[str]]()
    for record in (record for record in held if record.made_as == made_as):
        anchor, *others = _keys(record.texts, range(len(record.texts)))
        if anchor not in found and anchor not in others and asked.isdisjoint(others):
            asked.add(anchor)
            found.update(others)
            rows.append([" ".join(text.split()) for text in record.texts])
    return rows, made_as


def _keys(texts: Sequence[str], columns: Sequence[int]) -> list[int]:
    """What tells texts apart, but not their upper case and punctuation."""
    return [_hashed(" ".join(words_of(texts[column])) or texts[column].strip()) for column in columns]


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
