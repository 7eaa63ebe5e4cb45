"""Examples of a report: a wall of accepted and rejected texts with filters and sorting, and a few for Markdown."""

import json
import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from contrastive_encoders.reports.page import Section
from contrastive_encoders.reports.tables import beginning
from contrastive_encoders.synthesis.report.texts import ACCEPTED, ReportText, Texts
from contrastive_encoders.synthesis.shards.store import spread

TEMPLATES = Path(__file__).parent
MOST_ACCEPTED, MOST_REFUSED = 2_000, 1_000  # on a page
MOST_BYTES = 4_000_000  # of texts on a page, as it writes them: 6 a letter of another script
Embed = Callable[[Sequence[str]], np.ndarray]


def draw_wall(texts: Texts, seed: int) -> list[ReportText]:
    """Draw accepted texts, equally many of each label, and texts that were left out, equally many for each reason.

    They are in random order, and no more than a page has room for.
    """
    draw = random.Random(f"{seed}/wall")
    accepted = draw.sample(texts.accepted, len(texts.accepted))
    left_out = draw.sample(texts.left_out, len(texts.left_out))
    found = spread(accepted, MOST_ACCEPTED, lambda one: one.label)
    found += spread(left_out, MOST_REFUSED, lambda one: (one.label, one.fate))
    draw.shuffle(found)
    sizes = accumulate(sum(len(json.dumps(beginning(text))) for text in (one.x1 or "", one.text)) for one in found)
    return [one for one, size in zip(found, sizes, strict=True) if size <= MOST_BYTES]


class Example(NamedTuple):
    """An x1 with one x2 per label, as in the paper's table 4; texts of one label where only x1 is written."""

    x1: str | None
    texts: dict[str, str]  # label -> text


def draw_examples(accepted: Sequence[ReportText], number: int, seed: int) -> list[Example]:
    """Draw at random, each x1 as likely as another, but those that have all labels come first."""
    draw = random.Random(f"{seed}/examples")
    groups: dict[str | int, dict[str, list[str]]] = {}
    for place, one in enumerate(accepted):
        of_label = groups.setdefault(place if one.x1 is None else one.x1, {})
        of_label.setdefault(one.label, []).append(one.text)
    drawn = draw.sample(list(groups), len(groups))
    drawn.sort(key=lambda x1: -len(groups[x1]))
    return [
        Example(x1 if isinstance(x1, str) else None, {label: draw.choice(texts) for label, texts in groups[x1].items()})
        for x1 in drawn[:number]
    ]


def with_cosines(wall: Sequence[ReportText], embed: Embed) -> list[ReportText]:
    """Return the texts with their cosine to the text that they were written for."""
    texts = list(dict.fromkeys(text for one in wall for text in (one.x1, one.text) if text))
    if not texts:
        return list(wall)
    place_of = {text: place for place, text in enumerate(texts)}
    vectors = np.asarray(embed(texts), dtype=np.float32)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return [
        one._replace(cosine=float(units[place_of[one.x1]] @ units[place_of[one.text]])) if one.x1 and one.text else one
        for one in wall
    ]


def cosines_of(wall: Sequence[ReportText]) -> dict[str, list[float]]:
    """Return the cosines of the accepted texts, by label."""
    found: dict[str, list[float]] = {}
    for one in wall:
        if one.cosine is not None and one.fate == ACCEPTED:
            found.setdefault(one.label, []).append(one.cosine)
    return found


def wall_section(wall: Sequence[ReportText], accepted: int, left_out: int) -> Section:
    """The place of the wall on the page, which the script fills.

    ``accepted`` and ``left_out`` are the numbers of texts in the whole data set.
    """
    kept = sum(one.fate == ACCEPTED for one in wall)
    said = [f"{kept:,} of {accepted:,} accepted texts are here, drawn at random, as many of each label as there are"]
    refused = len(wall) - kept
    said += [f"; {refused:,} of {left_out:,} that were left out, as many of each reason"] * bool(refused)
    more = " Of those that were left out none was kept." if left_out and not refused else ""
    return Section("Examples", ["".join(said) + "." + more, Markup('<div id="wall"></div>')])


def data_of(wall: Sequence[ReportText], labels: Sequence[str]) -> dict[str, Any]:
    """Return what the script needs; texts come as data alone."""
    fates = list(dict.fromkeys([ACCEPTED, *sorted(one.fate for one in wall)]))
    items = []
    for one in wall:
        numbers = [None if value is None else round(value, 4) for value in (one.overlap, one.cosine, one.p)]
        texts = one.x1 and beginning(one.x1), beginning(one.text)
        items.append([*texts, labels.index(one.label), fates.index(one.fate), one.words, *numbers])
    return {"labels": list(labels), "fates": fates, "items": items}


def script() -> str:
    return (TEMPLATES / "wall.js").read_text(encoding="utf-8")


def style() -> str:
    return (TEMPLATES / "wall.css").read_text(encoding="utf-8")
