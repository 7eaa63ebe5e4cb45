"""What many batches come to: lengths, padding, duplicates."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from contracts import SpanBatch
from preview.batch import Example, Sequences, examples_of, masking, sequences_of, shared_texts

BINS = 12


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


def summaries(batches: Iterable[Any], tokenizer: Any, examples: int) -> list[Preview]:
    """Of each part of a mixture that was drawn in batches of its own; else one of all."""
    by_part: dict[str, list[Any]] = {}
    for batch in batches:
        by_part.setdefault(batch.part if isinstance(batch.part, str) else "", []).append(batch)
    return [summary(by_part[part], tokenizer, examples, part) for part in sorted(by_part)]


def summary(kept: list[Any], tokenizer: Any, examples: int, part: str = "") -> Preview:
    """The examples are of the first batch."""
    by_role = [sequences_of(batch) for batch in kept]
    joined = [
        Sequences(roles[0].role, [ids for one in roles for ids in one.ids]) for roles in zip(*by_role, strict=True)
    ]
    return Preview(
        part,
        type(kept[0]).__name__,
        len(kept),
        list(_facts(kept, by_role, tokenizer)),
        [histogram(one) for one in joined],
        list(examples_of(kept[0], tokenizer, examples)),
    )


def plural(role: str) -> str:
    return "hypotheses" if role == "hypothesis" else f"{role}s"


def histogram(one: Sequences) -> Histogram:
    lengths = one.lengths
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // BINS)  # the same for all, or their heights could not be compared
    edges = low + width * np.arange(-(-(high - low + 1) // width) + 1)
    counts, _ = np.histogram(lengths, edges)
    return Histogram(one.role, edges.tolist(), counts.tolist(), low, float(np.median(lengths)), high)


def _facts(batches: list[Any], by_role: list[list[Sequences]], tokenizer: Any) -> Iterable[tuple[str, str]]:
    rows = [len(batch.documents if isinstance(batch, SpanBatch) else batch.rows) for batch in batches]
    what = "documents" if isinstance(batches[0], SpanBatch) else "rows"
    yield f"{what} in a batch", f"{np.mean(rows):g}"
    if isinstance(batches[0].part, np.ndarray):
        names, counts = np.unique(np.concatenate([batch.part for batch in batches]), return_counts=True)
        for name, count in zip(names, counts, strict=True):
            yield f"{what} of {name} in a batch", f"{count / len(batches):.3g}"
    for place, one in enumerate(by_role[0]):
        yield f"{plural(one.role)} in a batch", f"{np.mean([len(roles[place].ids) for roles in by_role]):g}"
    lengths = [np.concatenate([one.lengths for one in roles]) for roles in by_role]
    tokens = float(np.mean([one.sum() for one in lengths]))
    padded = float(np.mean([one.max() * len(one) for one in lengths]))
    yield "tokens in a batch", f"{tokens:,.0f}"
    yield "padded to its longest", f"{padded:,.0f} ({1 - tokens / padded:.0%} padding; chunks pad less)"
    for place, one in enumerate(by_role[0]):
        twice = float(np.mean([roles[place].duplicates() for roles in by_role]))
        yield f"{plural(one.role)} that are there before", f"{twice:g} a batch"
    yield "texts in two roles", f"{np.mean([shared_texts(roles) for roles in by_role]):g} a batch"
    if isinstance(batches[0], SpanBatch):
        shares = [masking(batch, tokenizer.mask_token_id) for batch in batches]
        for name in shares[0]:
            share = float(np.mean([one[name] for one in shares]))
            yield f"tokens {name}", f"{share:.1%}" + (" of the anchors' tokens" if name == "predicted" else " of those")
