"""Find near-duplicates among the accepted texts of a dataset."""

from collections.abc import Sequence
from typing import NamedTuple

from contrastive_encoders.reports.page import ReportSection
from contrastive_encoders.reports.tables import Column, Table, shorten
from contrastive_encoders.synthesis.report.texts import ReportText
from contrastive_encoders.synthesis.rules.filters import NearDuplicates

THRESHOLD = 0.8  # share of their words, ignoring case and punctuation
MAX_TEXTS = 5_000  # per label
MAX_LISTED = 30


class RepeatedText(NamedTuple):
    """A text, and the later texts with the same label that are near-duplicates of it."""

    label: str
    text: str
    later: list[str]

    @property
    def other(self) -> str:
        """Return the first near-duplicate that is not exactly equal to the text, or an empty string."""
        return next((other for other in self.later if other != self.text), "")


def find_repeated(texts: Sequence[ReportText], label: str) -> list[RepeatedText]:
    """Group near-duplicates: return each text that is not a near-duplicate of an earlier text, with its duplicates."""
    seen, found = NearDuplicates(THRESHOLD), list[RepeatedText]()
    for one in texts:
        place = seen.earlier(one.text)
        if place is None:
            found.append(RepeatedText(label, one.text, []))
        else:
            found[place].later.append(one.text)
    return found


def near_duplicates_section(accepted: Sequence[ReportText], labels: Sequence[str]) -> ReportSection:
    """Return the report section with the number of near-duplicates per label, and the most repeated texts."""
    rows, again = [], list[RepeatedText]()
    for label in labels:
        texts = [one for one in accepted if one.label == label][:MAX_TEXTS]
        found = find_repeated(texts, label)
        doubles = len(texts) - len(found)
        rows.append([label, len(texts), doubles, doubles / max(len(texts), 1)])
        again += [one for one in found if one.later]
    again.sort(key=lambda one: -len(one.later))
    note = (
        f"A near-duplicate shares {THRESHOLD:.0%} of its words with an earlier text of the same label, ignoring case "
        f"and punctuation. The first {MAX_TEXTS:,} texts of each label were compared."
    )
    heads = [Column("label"), Column("texts", ","), Column("near-duplicates", ","), Column("share", ".1%")]
    listed = [[shorten(one.text), one.label, len(one.later), shorten(one.other)] for one in again[:MAX_LISTED]]
    title = "Texts that come back most" if len(again) <= MAX_LISTED else f"The {MAX_LISTED} texts that come back most"
    most = Table([Column("text"), Column("label"), Column("again", ","), Column("another wording")], listed, title)
    return ReportSection("Near-duplicates", [note, Table(heads, rows), *([most] if listed else [])])
