"""Statistics of a data set per label: yield, lengths, distinct n-grams, copies and lexical overlap."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from synthesis.rules.filters import folded, jaccard
from synthesis.shards.store import Entry

MOST_FOR_DISTINCT = 20_000  # texts; distinct-n falls with the number of texts, so it is always of the first ones
BINS = 20
LONGEST = 60  # words; longer texts share the last bin


class Measured(NamedTuple):
    """Of the accepted texts of one label. Rates in 0..1."""

    texts: int
    mean_words: float
    words: list[int]  # texts of 0, 1, ... LONGEST (and more) words
    distinct_1: float  # different words over words
    distinct_2: float
    copies: float  # of x1
    folded_copies: float  # whatever the case and punctuation
    overlap: float  # mean Jaccard of the words of x1 and x2, case and punctuation removed
    overlaps: list[int]  # texts in BINS bins of overlap from 0 to 1


class _Sums:
    def __init__(self) -> None:
        self.texts = self.words_sum = self.copies = self.folded_copies = 0
        self.words = [0] * (LONGEST + 1)
        self.overlaps = [0] * BINS
        self.overlap = 0.0
        self.unigrams: set[str] = set()
        self.bigrams: set[tuple[str, str]] = set()
        self.counted = self.counted_pairs = 0

    def add(self, text: str, x1: str | None) -> None:
        words = text.split()
        self.words[min(len(words), LONGEST)] += 1
        self.words_sum += len(words)
        if self.texts < MOST_FOR_DISTINCT:
            plain_words = folded(text).split()
            self.unigrams.update(plain_words)
            self.bigrams.update(pairwise(plain_words))
            self.counted += len(plain_words)
            self.counted_pairs += max(len(plain_words) - 1, 0)
        self.texts += 1
        if x1 is not None:
            self.copies += text == x1
            plain, plain_x1 = folded(text), folded(x1)
            self.folded_copies += text == x1 or plain == plain_x1 != ""
            overlap = jaccard(frozenset(plain.split()), frozenset(plain_x1.split()))
            self.overlap += overlap
            self.overlaps[min(int(overlap * BINS), BINS - 1)] += 1

    def measured(self) -> Measured:
        n = max(self.texts, 1)
        return Measured(
            self.texts,
            self.words_sum / n,
            self.words,
            len(self.unigrams) / max(self.counted, 1),
            len(self.bigrams) / max(self.counted_pairs, 1),
            self.copies / n,
            self.folded_copies / n,
            self.overlap / n,
            self.overlaps,
        )


def measure(entries: Iterable[Entry], labels: Sequence[str]) -> dict[str, Measured]:
    """Per label; one pass."""
    sums = {label: _Sums() for label in labels}
    for entry in entries:
        x2 = entry["text_b"]
        text, x1 = (entry["text_a"], None) if x2 is None else (x2, entry["text_a"])
        sums[entry["label"]].add(text, x1)
    return {label: one.measured() for label, one in sums.items()}


class Example(NamedTuple):
    """An x1 with one x2 per label, as in the paper's table 4; texts of one label where only x1 is written."""

    x1: str | None
    texts: dict[str, str]  # label -> text


def draw_examples(entries: Iterable[Entry], labels: Sequence[str], number: int, seed: int) -> list[Example]:
    """Random ones, each x1 as likely as another; with pairs, x1 that have all labels come first. One pass."""
    draw = random.Random(f"{seed}/examples")
    pool: list[Example] = []  # a reservoir over groups of entries that share an x1
    seen = 0

    def offer(group: Example) -> None:
        nonlocal seen
        seen += 1
        if len(pool) < 20 * number:
            pool.append(group)
        elif (place := draw.randrange(seen)) < len(pool):
            pool[place] = group

    current: Example | None = None
    counts = Counter[str]()
    for entry in entries:
        x2 = entry["text_b"]
        if x2 is None:
            offer(Example(None, {entry["label"]: entry["text_a"]}))
            continue
        if current is None or current.x1 != entry["text_a"]:
            if current is not None:
                offer(current)
            current, counts = Example(entry["text_a"], {}), Counter()
        counts[entry["label"]] += 1
        if draw.randrange(counts[entry["label"]]) == 0:  # each of a label's texts is as likely
            current.texts[entry["label"]] = x2
    if current is not None:
        offer(current)
    draw.shuffle(pool)
    return sorted(pool, key=lambda one: -len(one.texts))[:number] if labels else pool[:number]


def as_json(measured: dict[str, Measured]) -> dict[str, dict[str, Any]]:
    """The numbers that a manifest holds."""
    drop = ("words", "overlaps", "texts")
    return {
        label: {name: value for name, value in one._asdict().items() if name not in drop}
        for label, one in measured.items()
    }
