"""Examples in a report: accepted texts of each label, and rejected texts for each reason."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from contrastive_encoders.core.unit_rows import unit_rows
from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Column, Table, shorten
from contrastive_encoders.synthesis.report.texts import ACCEPTED, GeneratedTexts, ReportText
from contrastive_encoders.synthesis.shards.store import interleave

MAX_ACCEPTED, MAX_LEFT_OUT = 120, 120  # rows of a report
MAX_COMPARED = 2_000  # texts whose similarity is computed
Embed = Callable[[Sequence[str]], np.ndarray]


def draw_examples(texts: GeneratedTexts, seed: int) -> list[ReportText]:
    """Sample equally many accepted texts of each label, and equally many rejected texts of each label and reason."""
    draw = random.Random(f"{seed}/examples")
    accepted = draw.sample(texts.accepted, len(texts.accepted))
    left_out = draw.sample(texts.left_out, len(texts.left_out))
    found = interleave(accepted, MAX_ACCEPTED, lambda one: one.label)
    found += interleave(left_out, MAX_LEFT_OUT, lambda one: (one.label, one.outcome))
    return sorted(found, key=lambda one: (one.outcome != ACCEPTED, one.outcome, one.label))


def add_cosines(texts: Sequence[ReportText], embed: Embed) -> list[ReportText]:
    """Add the cosine similarity of each text to the text ``x1`` for which it was written."""
    several = list(dict.fromkeys(text for one in texts for text in (one.x1, one.text) if text))
    if not several:
        return list(texts)
    place_of = {text: place for place, text in enumerate(several)}
    units = unit_rows(np.asarray(embed(several), dtype=np.float32))
    return [
        one._replace(cosine=float(units[place_of[one.x1]] @ units[place_of[one.text]])) if one.x1 and one.text else one
        for one in texts
    ]


def cosines_by_label(texts: GeneratedTexts, embed: Embed, seed: int) -> dict[str, list[float]]:
    """Return, for each label, the cosine similarities of a sample of accepted texts to their ``x1``."""
    pairs = [one for one in texts.accepted if one.x1]
    drawn = random.Random(f"{seed}/cosines").sample(pairs, min(len(pairs), MAX_COMPARED))
    found: dict[str, list[float]] = {}
    for one in add_cosines(drawn, embed):
        if one.cosine is not None:
            found.setdefault(one.label, []).append(one.cosine)
    return found


def examples_section(examples: Sequence[ReportText]) -> ReportSection:
    """Return the report section with a table of examples. Long texts are truncated, and empty columns left out."""
    columns: list[tuple[Column, list[Any]]] = [
        (Column("outcome"), [one.outcome for one in examples]),
        (Column("label"), [one.label for one in examples]),
        (Column("x1"), [one.x1 and shorten(one.x1) for one in examples]),
        (Column("text"), [shorten(one.text) for one in examples]),
        (Column("overlap", ".2f"), [one.overlap for one in examples]),
        (Column("similarity", ".2f"), [one.cosine for one in examples]),
    ]
    filled = [(head, values) for head, values in columns if any(value is not None for value in values)]
    rows = [list(row) for row in zip(*(values for _, values in filled), strict=True)]
    note = "Drawn at random: equally many accepted texts of each label, and equally many rejected texts of each reason."
    table = Table([head for head, _ in filled], rows)
    return ReportSection("Examples", [note, table] if examples else ["No text was accepted or kept."])
