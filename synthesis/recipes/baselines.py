"""Scored rows whose candidates GenSE's generator did not write: the paper's baselines (Chen et al. 2022, table 8).

A *source* says for some sentences what may follow from each and what may contradict it: retrieved neighbours, a
translation there and back, DINO's pairs. The rest is GenSE's: the discriminator judges, the rules choose.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from command.processes import Ranks
from prompts import DIRECTIONS, Direction
from synthesis.decoding.continuations import Decoding
from synthesis.recipes.back_translation import Translator
from synthesis.recipes.gense import AT_ONCE, Candidate, Pair
from synthesis.recipes.retrieval import Bm25, Neighbours
from synthesis.shards.stage import DataSet
from synthesis.shards.store import LabelCounts, read_entries

NOT_DECODED = Decoding(max_new_tokens=1, top_p=None, top_k=None, temperature=1.0, seed=0, rows=None, token_budget=1)
EVERY = 20.0  # seconds between lines of the log

log = logging.getLogger(__name__)

Score = Callable[[Sequence[Pair]], list[float]]


class Found(NamedTuple):
    """What there is for a sentence."""

    premise: str
    texts: dict[Direction, list[tuple[str, bool]]]  # text, whether it is whole; of a direction that is absent nothing
    about: dict[str, str] = {}  # what the row says besides


class Source(Protocol):
    """Called with parts of a range of places, in order; the answer depends on the places alone."""

    def __call__(self, first: int, last: int) -> list[Found]: ...


class Retrieved:
    """The same neighbours for both directions: the discriminator tells which they belong to."""

    def __init__(self, sentences: Sequence[str], how: Bm25) -> None:
        self.neighbours = Neighbours(sentences, how)

    def __call__(self, first: int, last: int) -> list[Found]:
        places = range(first, last)
        return [
            Found(
                self.neighbours.sentences[place], {direction: [(one, True) for one in some] for direction in DIRECTIONS}
            )
            for place, some in zip(places, self.neighbours.of(places), strict=True)
        ]


class Translated:
    """One candidate that should follow, and none that contradicts."""

    def __init__(self, sentences: Sequence[str], there: Translator, back: Translator) -> None:
        self.sentences, self.there, self.back = sentences, there, back

    def __call__(self, first: int, last: int) -> list[Found]:
        premises = self.sentences[first:last]
        pivots = self.there(premises)
        returned = self.back([one.text for one in pivots])
        return [
            Found(premise, {"entailment": [(one.text, one.whole and pivot.whole)]}, {"pivot": pivot.text})
            for premise, pivot, one in zip(premises, pivots, returned, strict=True)
        ]


class FromDino:
    """A finished data set of DINO's pairs: texts of one label follow from x1, those of another contradict it."""

    def __init__(self, folder: Path, labels: dict[Direction, str]) -> None:
        direction_of = {label: direction for direction, label in labels.items()}
        self.rows: list[Found] = []
        for x1, entries in groupby(read_entries(folder), key=lambda entry: entry["text_a"]):
            row = Found(x1, {direction: [] for direction in DIRECTIONS})
            for entry in entries:
                if entry["label"] in direction_of and entry["text_b"] is not None:
                    row.texts[direction_of[entry["label"]]].append((entry["text_b"], True))
            self.rows.append(row)

    def __call__(self, first: int, last: int) -> list[Found]:
        return self.rows[first:last]


@dataclass
class BaselineStage(DataSet):
    """A shard is made at once: nothing is under way between two of them."""

    source: Source | None = field(default=None)  # None: all shards are there
    score: Score | None = field(default=None)  # None: nothing is judged

    def describe(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The triplets beside it have the report."""
        return {}

    def write(self, ranks: Ranks) -> None:
        """The shards of this process that are missing."""
        missing = self.missing(ranks)
        if not missing:
            return
        self.store.write_manifest(self.manifest(complete=False))  # a folder that a kill leaves says what it is
        began = said = time.monotonic()
        for done, number in enumerate(missing, start=1):
            first, last = number * self.shard_size, min((number + 1) * self.shard_size, self.number)
            rows = [
                row for begin in range(first, last, AT_ONCE) for row in self._rows(begin, min(begin + AT_ONCE, last))
            ]
            about = {"first": first, "inputs": last - first, "tokens": 0, "labels": _counts(rows)}
            self.store.write(number, rows, about)
            if (now := time.monotonic()) - said > EVERY:
                said = now
                log.info("%s: %d of %d shards, %.1f s each", self.title, done, len(missing), (now - began) / done)

    def _rows(self, first: int, last: int) -> Iterator[dict[str, Any]]:
        assert self.source is not None
        found = self.source(first, last)
        pairs = [(one.premise, text) for one in found for texts in one.texts.values() for text, _ in texts]
        p_true = iter(self.score(pairs) if self.score else [None] * len(pairs))
        for one in found:
            judged: dict[str, Any] = {
                direction: [Candidate(text=text, p_true=next(p_true), closed=whole) for text, whole in texts]
                for direction, texts in one.texts.items()
            }
            yield {"premise": one.premise, **one.about, **judged}


def _counts(rows: Sequence[dict[str, Any]]) -> dict[str, LabelCounts]:
    numbers = {direction: sum(len(row.get(direction, ())) for row in rows) for direction in DIRECTIONS}
    return {
        direction: LabelCounts(samples=number, accepted=number, rejected={}) for direction, number in numbers.items()
    }
