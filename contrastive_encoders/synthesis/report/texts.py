"""The texts that a report looks at: all of a data set or, of a large one, those of shards spread evenly over it."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core.gense_prompts import DIRECTIONS
from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.synthesis.rules.filters import folded, jaccard
from contrastive_encoders.synthesis.shards.store import ShardStore, read_shard, shard_name

ACCEPTED = "accepted"
MOST_ROWS = 50_000  # of accepted rows that a report looks at


class ReportText(NamedTuple):
    """A text of a data set, accepted or left out."""

    x1: str | None  # what it was written for
    text: str
    label: str
    fate: str  # accepted, or why not
    p: float | None = None  # of the answer that its label wants, where it was judged
    cosine: float | None = None  # to x1, under the encoder

    @property
    def words(self) -> int:
        return len(self.text.split())

    @property
    def overlap(self) -> float | None:
        """Jaccard of the words of text and x1, case and punctuation aside."""
        if self.x1 is None:
            return None
        return jaccard(frozenset(folded(self.text).split()), frozenset(folded(self.x1).split()))


class GeneratedTexts(NamedTuple):
    """The accepted texts, and some of those that were left out."""

    accepted: list[ReportText]
    left_out: list[ReportText]


class Subject(NamedTuple):
    """The part of a report that differs between kinds of data sets."""

    title: str
    lead: str
    labels: list[str]
    sections: list[ReportSection]


def read_texts(folder: Path, manifest: Mapping[str, Any]) -> GeneratedTexts:
    """Read whole shards, as many as hold about ``MOST_ROWS`` accepted rows."""
    shards, store = int(manifest["shards_planned"]), ShardStore(folder)
    chosen = range(0, shards, max(1, manifest["counts"]["accepted"] // MOST_ROWS))
    rows = (row for number in chosen for row in read_shard(folder / shard_name(number)))
    accepted = [text for row in islice(rows, MOST_ROWS) for text in texts_of(row)]
    left_out = [
        ReportText(one["x1"], one["text"], one["label"], one["why"], one.get("p"))
        for number in chosen
        if (record := store.record(number)) is not None
        for one in record.get("left_out", ())
    ]
    return GeneratedTexts(accepted, left_out)


def texts_of(row: Mapping[str, Any]) -> Iterator[ReportText]:
    """The texts that were written of a line of a shard: one text of a label, or those of a triplet."""
    if "premise" in row:
        for direction in DIRECTIONS:
            if direction in row:
                yield ReportText(row["premise"], row[direction], direction, ACCEPTED, row[f"p_{direction}"])
    elif row["text_b"] is None:
        yield ReportText(None, row["text_a"], row["label"], ACCEPTED)
    else:
        yield ReportText(row["text_a"], row["text_b"], row["label"], ACCEPTED)
