"""Statistics of a preview over many batches: lengths, padding, and duplicates."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.core import SpanBatch
from contrastive_encoders.core.counts import plural
from contrastive_encoders.encoders.negative_counts import usable_negatives
from contrastive_encoders.training.preview.batch import (
    Example,
    RoleSequences,
    examples_of,
    masking,
    most_frequent,
    sequences_of,
)

BINS = 12
MAX_CHARS = 60  # of the most frequent text


class Histogram(NamedTuple):
    role: str
    edges: list[int]  # at most BINS + 1, of tokens
    counts: list[int]
    shortest: int
    median: float
    longest: int


class Preview(NamedTuple):
    part: str  # of a mixture; else empty
    kind: str
    batches: int
    facts: list[tuple[str, str]]
    histograms: list[Histogram]
    examples: list[Example]

    @property
    def title(self) -> str:
        return f"{self.part}{': ' if self.part else ''}{self.kind}, {self.batches} batches"


def summaries(
    batches: Iterable[Any], tokenizer: Any, examples: int, chunked: Callable[[np.ndarray], int]
) -> list[Preview]:
    """Summarize the batches of each data source of a mixture, if each batch comes from one source; otherwise return a
    single summary.

    Args:
        chunked: function from sequence lengths to the number of tokens, including padding, after the batch is split
            into chunks.
    """
    by_part: dict[str, list[Any]] = {}
    for batch in batches:
        by_part.setdefault(batch.part if isinstance(batch.part, str) else "", []).append(batch)
    return [summary(kept, tokenizer, examples, chunked, part) for part, kept in sorted(by_part.items())]


def summary(
    kept: list[Any],
    tokenizer: Any,
    examples: int,
    chunked: Callable[[np.ndarray], int],
    part: str = "",
) -> Preview:
    """Return the statistics and the examples of several batches. The examples come from the first batch."""
    by_role = [sequences_of(batch) for batch in kept]
    joined = [
        RoleSequences(roles[0].role, [ids for one in roles for ids in one.ids]) for roles in zip(*by_role, strict=True)
    ]
    return Preview(
        part,
        type(kept[0]).__name__,
        len(kept),
        list(_facts(kept, by_role, tokenizer, chunked)),
        [histogram(one) for one in joined],
        list(examples_of(kept[0], tokenizer, examples)),
    )


def _masks(batches: list[Any], tokenizer: Any) -> dict[str, float]:
    shares = [masking(batch, tokenizer.mask_token_id) for batch in batches if isinstance(batch, SpanBatch)]
    return {name: float(np.mean([one[name] for one in shares])) for name in shares[0]} if shares else {}


def histogram(one: RoleSequences) -> Histogram:
    lengths = one.lengths
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // BINS)  # the same for all, so that the heights of the bars are comparable
    edges = low + width * np.arange(-(-(high - low + 1) // width) + 1)
    counts, _ = np.histogram(lengths, edges)
    return Histogram(one.role, edges.tolist(), counts.tolist(), low, float(np.median(lengths)), high)


def _facts(
    batches: list[Any], by_role: list[list[RoleSequences]], tokenizer: Any, chunked: Callable[[np.ndarray], int]
) -> Iterable[tuple[str, str]]:
    lengths = [np.concatenate([one.lengths for one in roles]) for roles in by_role]
    tokens = float(np.mean([one.sum() for one in lengths]))
    rows = [len(batch.rows) for batch in batches]
    unit = "documents" if isinstance(batches[0], SpanBatch) else "rows"
    yield f"{unit} per batch", f"{np.mean(rows):g}"
    if isinstance(batches[0].part, np.ndarray):
        names, counts = np.unique(np.concatenate([batch.part for batch in batches]), return_counts=True)
        for name, count in zip(names, counts, strict=True):
            yield f"{unit} of {name} per batch", f"{count / len(batches):.3g}"
    for place, one in enumerate(by_role[0]):
        yield f"{plural(one.role)} per batch", f"{np.mean([len(roles[place].ids) for roles in by_role]):g}"
    yield "tokens per batch", f"{tokens:,.0f}"
    for name, sizes in (
        ("padded to the longest text of the batch", [one.max() * len(one) for one in lengths]),
        ("padded within chunks of similar length", [chunked(one) for one in lengths]),
    ):
        padded = float(np.mean(sizes))
        yield name, f"{padded:,.0f} ({1 - tokens / padded:.0%} padding)"
    for place, one in enumerate(by_role[0]):
        duplicates = float(np.mean([roles[place].duplicates() for roles in by_role]))
        yield f"duplicate {plural(one.role)}", f"{duplicates:g} per batch"
    if frequent := most_frequent(batches, tokenizer):
        text, count = frequent
        shown = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
        yield "most frequent text", f"{count} times in a batch: {shown}"
    if usable := [found for found in map(usable_negatives, batches) if found is not None]:
        counts = np.concatenate(usable)
        spread = "" if counts.min() == counts.max() else f" ({counts.min():,} to {counts.max():,})"
        yield "negatives per anchor (duplicates excluded)", f"{counts.mean():,.1f}{spread}"
    for name, share in _masks(batches, tokenizer).items():
        yield f"tokens {name}", f"{share:.1%} of the {'anchor' if name == 'predicted' else 'predicted'} tokens"
