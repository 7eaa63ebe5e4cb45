"""Texts of a data set that say nearly the same as an earlier one of their label."""

from collections.abc import Iterable
from typing import NamedTuple

from files.page import Section
from files.tables import Column, Table, beginning
from synthesis.report.wall import ReportText
from synthesis.rules.filters import NearDuplicates

THRESHOLD = 0.8  # of their words, case and punctuation aside
MOST_TEXTS = 5_000  # of a label
LISTED = 30


class Repeated(NamedTuple):
    """A text and how many later ones are like it; ``other`` is the first that is not the same letter by letter."""

    label: str
    text: str
    times: int
    other: str


def repeated(accepted: Iterable[ReportText]) -> tuple[list[Repeated], dict[str, tuple[int, int]]]:
    """Those with the most first; and of each label how many texts were looked at, and how many are like an earlier."""
    seen: dict[str, NearDuplicates] = {}
    firsts: dict[str, list[str]] = {}
    alike: dict[tuple[str, int], list[str]] = {}
    counts: dict[str, tuple[int, int]] = {}
    for one in accepted:
        looked, doubled = counts.get(one.label, (0, 0))
        if looked == MOST_TEXTS:
            continue
        place = seen.setdefault(one.label, NearDuplicates(THRESHOLD)).earlier(one.text)
        if place is None:
            firsts.setdefault(one.label, []).append(one.text)
        else:
            alike.setdefault((one.label, place), []).append(one.text)
        counts[one.label] = looked + 1, doubled + (place is not None)
    found = [
        Repeated(label, text, len(later), next((other for other in later if other != text), ""))
        for (label, place), later in alike.items()
        for text in [firsts[label][place]]
    ]
    return sorted(found, key=lambda one: -one.times), counts


def doubles_section(accepted: Iterable[ReportText]) -> Section:
    """How many there are of each label, and the texts that come back most."""
    found, counts = repeated(accepted)
    note = (
        f"A text is one where it shares {THRESHOLD:.0%} of its words with an earlier one of its label, case and "
        f"punctuation aside. The first {MOST_TEXTS:,} texts of each label were looked at."
    )
    rows = [[label, looked, double, double / looked] for label, (looked, double) in counts.items()]
    heads = [Column("label"), Column("texts", ","), Column("near-duplicates", ","), Column("share", ".1%")]
    listed = [[beginning(one.text), one.label, one.times, beginning(one.other)] for one in found[:LISTED]]
    title = "Texts that come back most" if len(found) <= LISTED else f"The {LISTED} texts that come back most"
    again = Table([Column("text"), Column("label"), Column("again", ","), Column("another wording")], listed, title)
    return Section("Near-duplicates", [note, Table(heads, rows), *([again] if listed else [])])
