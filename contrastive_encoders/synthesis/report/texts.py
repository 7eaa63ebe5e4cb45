"""Read the texts for a report: all texts of a dataset or, for a large dataset, the texts in evenly spaced shards."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core.gense_prompts import DIRECTIONS
from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.synthesis.rules.filters import fold, jaccard
from contrastive_encoders.synthesis.shards.store import ShardStore, read_shard, shard_name

ACCEPTED = "accepted"
MAX_ROWS = 50_000  # accepted rows that a report reads


class ReportText(NamedTuple):
    """A generated text, accepted or rejected."""

    x1: str | None  # the text that it was written for
    text: str
    label: str
    outcome: str  # accepted, or the reason for the rejection
    p: float | None = None  # probability of the answer that its label requires, if it was judged
    cosine: float | None = None  # with x1, according to the encoder

    @property
    def words(self) -> int:
        return len(self.text.split())

    @property
    def overlap(self) -> float | None:
        """Return the Jaccard similarity of the words of ``text`` and ``x1``, ignoring case and punctuation."""
        if self.x1 is None:
            return None
        return jaccard(frozenset(fold(self.text).split()), frozenset(fold(self.x1).split()))


class GeneratedTexts(NamedTuple):
    """The accepted texts, and a sample of the rejected texts."""

    accepted: list[ReportText]
    left_out: list[ReportText]


class Subject(NamedTuple):
    """Contents of a report that differ between types of datasets."""

    title: str
    lead: str
    labels: list[str]
    sections: list[ReportSection]


def read_texts(folder: Path, manifest: Mapping[str, Any]) -> GeneratedTexts:
    """Read the texts of evenly spaced shards, about ``MAX_ROWS`` accepted rows in total."""
    shards, store = int(manifest["shards_planned"]), ShardStore(folder)
    chosen = range(0, shards, max(1, manifest["counts"]["accepted"] // MAX_ROWS))
    rows = (row for number in chosen for row in read_shard(folder / shard_name(number)))
    accepted = [text for row in islice(rows, MAX_ROWS) for text in texts_of(row)]
    left_out = [
        ReportText(one["x1"], one["text"], one["label"], one["why"], one.get("p"))
        for number in chosen
        if (record := store.record(number)) is not None
        for one in record.get("left_out", ())
    ]
    return GeneratedTexts(accepted, left_out)


def texts_of(row: Mapping[str, Any]) -> Iterator[ReportText]:
    """Yield the generated texts in a row of a shard: one text with a label, or the hypotheses of a triplet."""
    if "premise" in row:
        for direction in DIRECTIONS:
            if direction in row:
                yield ReportText(row["premise"], row[direction], direction, ACCEPTED, row[f"p_{direction}"])
    elif row["text_b"] is None:
        yield ReportText(None, row["text_a"], row["label"], ACCEPTED)
    else:
        yield ReportText(row["text_a"], row["text_b"], row["label"], ACCEPTED)
