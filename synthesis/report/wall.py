"""The examples of a page: accepted texts and some that were left out, which its script filters and sorts."""

import json
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from files.page import Section
from files.tables import beginning
from synthesis.report.figures import ACCEPTED
from synthesis.rules.filters import folded, jaccard
from synthesis.shards.store import Entry, LeftOut, spread

TEMPLATES = Path(__file__).parent
MOST_ACCEPTED, MOST_REFUSED = 2_000, 1_000  # on a page
MOST_BYTES = 4_000_000  # of texts on a page, as it writes them: 6 a letter of another script
Embed = Callable[[Sequence[str]], np.ndarray]


class ReportText(NamedTuple):
    """A text on the wall."""

    x1: str | None
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
        if self.x1 is None:
            return None
        return jaccard(frozenset(folded(self.text).split()), frozenset(folded(self.x1).split()))


def accepted_of(entry: Entry) -> ReportText:
    """As it stands in a shard."""
    text, x1 = entry["text_b"], entry["text_a"]
    return (
        ReportText(None, x1, entry["label"], ACCEPTED)
        if text is None
        else ReportText(x1, text, entry["label"], ACCEPTED)
    )


def draw_wall(
    accepted: Iterable[ReportText], left_out: Iterable[LeftOut], labels: Sequence[str], seed: int
) -> list[ReportText]:
    """Accepted texts, of each label as many and each text as likely as another, and of those that the shards' records
    keep of the others as many of each reason; in random order, and no more than a page has room for."""
    draw = random.Random(f"{seed}/wall")
    most = max(1, MOST_ACCEPTED // max(len(labels), 1))
    found = _drawn(accepted, lambda one: one.label, most, draw)
    others = (ReportText(one["x1"], one["text"], one["label"], one["why"], one.get("p")) for one in left_out)
    refused = _drawn(others, _kind, MOST_REFUSED, draw)
    draw.shuffle(refused)
    found += spread(refused, MOST_REFUSED, _kind)
    draw.shuffle(found)
    sizes = accumulate(sum(len(json.dumps(beginning(text))) for text in (one.x1 or "", one.text)) for one in found)
    return [one for one, size in zip(found, sizes, strict=True) if size <= MOST_BYTES]


def _kind(one: ReportText) -> tuple[str, str]:
    return one.label, one.fate


def _drawn(
    found: Iterable[ReportText], kind: Callable[[ReportText], Hashable], most: int, draw: random.Random
) -> list[ReportText]:
    """At most so many of each kind, each one of a kind as likely as another; no more are held at a time."""
    pools: dict[Hashable, list[ReportText]] = {}
    seen = Counter[Hashable]()
    for one in found:
        seen[kind(one)] += 1
        number, pool = seen[kind(one)], pools.setdefault(kind(one), [])
        place = number - 1 if number <= most else draw.randrange(number)
        if place < most:
            pool[place : place + 1] = [one]
    return [one for pool in pools.values() for one in pool]


def with_cosines(wall: Sequence[ReportText], embed: Embed) -> list[ReportText]:
    """The same, and how similar each text is to what it was written for."""
    texts = {
        text: place for place, text in enumerate(dict.fromkeys(t for one in wall for t in (one.x1, one.text) if t))
    }
    if not texts:
        return list(wall)
    vectors = np.asarray(embed(list(texts)), dtype=np.float32)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return [
        one._replace(cosine=float(units[texts[one.x1]] @ units[texts[one.text]])) if one.x1 and one.text else one
        for one in wall
    ]


def cosines_of(wall: Sequence[ReportText]) -> dict[str, list[float]]:
    """Of the accepted texts, by label."""
    found: dict[str, list[float]] = {}
    for one in wall:
        if one.cosine is not None and one.fate == ACCEPTED:
            found.setdefault(one.label, []).append(one.cosine)
    return found


def wall_section(wall: Sequence[ReportText], accepted: int, left_out: int) -> Section:
    """Its place on the page; the script fills it. ``accepted`` and ``left_out`` are of the whole data set."""
    kept = sum(one.fate == ACCEPTED for one in wall)
    said = [f"{kept:,} of {accepted:,} accepted texts are here, drawn at random, as many of each label as there are"]
    refused = len(wall) - kept
    said += [f"; {refused:,} of {left_out:,} that were left out, as many of each reason"] * bool(refused)
    more = " Of those that were left out none was kept." if left_out and not refused else ""
    return Section("Examples", ["".join(said) + "." + more, Markup('<div id="wall"></div>')])


def data_of(wall: Sequence[ReportText], labels: Sequence[str]) -> dict[str, Any]:
    """What the script needs; texts come as data alone."""
    fates = list(dict.fromkeys([ACCEPTED, *sorted(one.fate for one in wall)]))

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 4)

    items = [
        [
            one.x1 and beginning(one.x1),
            beginning(one.text),
            labels.index(one.label),
            fates.index(one.fate),
            one.words,
            rounded(one.overlap),
            rounded(one.cosine),
            rounded(one.p),
        ]
        for one in wall
    ]
    return {"labels": list(labels), "fates": fates, "items": items}


def script() -> str:
    return (TEMPLATES / "wall.js").read_text(encoding="utf-8")


def style() -> str:
    return (TEMPLATES / "wall.css").read_text(encoding="utf-8")


def counted(counts: Mapping[str, Any]) -> int:
    """Texts that were left out, by a manifest's counts."""
    return sum(counts["rejected"].values())
