"""The report on a data set: report.html, and report.md with pictures."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.io.atomic import write_whole
from contrastive_encoders.reports.figure import Figure, NotDrawn, draw, library
from contrastive_encoders.reports.page import Section, in_markdown, page
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.synthesis.report import examples as wall
from contrastive_encoders.synthesis.report import figures
from contrastive_encoders.synthesis.report.examples import Embed, Example, draw_examples
from contrastive_encoders.synthesis.report.label_sections import about_labels
from contrastive_encoders.synthesis.report.measures import MOST_FOR_DISTINCT, Measured, as_json, measure
from contrastive_encoders.synthesis.report.near_duplicates import doubles_section
from contrastive_encoders.synthesis.report.texts import MOST_ROWS, ReportText, Subject, read_texts
from contrastive_encoders.synthesis.report.triplet_sections import about_triplets

EXAMPLES = 8
SEED = 42

log = logging.getLogger(__name__)


class Encoder(NamedTuple):
    """An encoder by which texts are compared."""

    name: str
    embed: Embed


def write_report(folder: Path, manifest: Mapping[str, Any], encoder: Encoder | None = None) -> dict[str, Any]:
    """Write report.html, report.md and pictures/. Return the measures of the texts for the manifest."""
    texts = read_texts(folder, manifest)
    subject = (about_triplets if manifest["identity"]["kind"] == "triplets" else about_labels)(manifest, texts)
    measured = measure(texts.accepted, subject.labels)
    shown = wall.draw_wall(texts, SEED)
    if encoder is not None:
        shown = wall.with_cosines(shown, encoder.embed)
    cosines = wall.cosines_of(shown)
    drawn = [figures.lengths(measured)]
    if any(one.x1 is not None for one in texts.accepted):
        drawn.append(figures.overlaps(measured))
    if encoder is not None and cosines:
        drawn.append(figures.similarities({label: cosines.get(label, []) for label in measured}, encoder.name))
    sections = [
        *subject.sections,
        _texts(measured, cosines, drawn),
        doubles_section(texts.accepted, subject.labels),
    ]
    some = draw_examples(texts.accepted, EXAMPLES, SEED)
    _write(folder, manifest, subject, sections, shown, some)
    return {"measures": as_json(measured)}


def _write(
    folder: Path,
    manifest: Mapping[str, Any],
    subject: Subject,
    sections: Sequence[Section],
    shown: Sequence[ReportText],
    examples: Sequence[Example],
) -> None:
    """Write report.html, report.md, and each figure as PNG and SVG."""
    try:
        drawn = draw([figure for section in sections for figure in section.figures])
        library()
    except NotDrawn as error:
        log.warning("%s has no figures: %s", folder / "report.html", error)
        drawn = {}
        sections = [
            one._replace(parts=[part for part in one.parts if not isinstance(part, Figure)]) for one in sections
        ]
    for name, found in drawn.items():
        write_whole(folder / "pictures" / f"{name}.png", found.png, sync=False)
        write_whole(folder / "pictures" / f"{name}.svg", found.svg, sync=False)
    lead = [subject.lead + ("" if manifest["complete"] else " It is not finished.")]
    some = Section("Examples", ["Drawn at random." if examples else "No text was accepted.", *map(_example, examples)])
    write_whole(folder / "report.md", in_markdown(subject.title, [*sections, some], lead))
    counts = manifest["counts"]
    numbers = (subject.texts_per_row * number for number in (counts["accepted"], sum(counts["rejected"].values())))
    first = wall.wall_section(shown, *numbers) if shown else some
    html = page(
        subject.title,
        [first, *sections],
        lead,
        drawn=drawn,
        key=subject.labels,
        style=wall.style(),
        scripts=[wall.script()],
        data={"wall": wall.data_of(shown, subject.labels)},
    )
    write_whole(folder / "report.html", html)


def _texts(
    measured: Mapping[str, Measured], cosines: Mapping[str, Sequence[float]], drawn: Sequence[Figure]
) -> Section:
    rows = []
    for label, one in measured.items():
        found = cosines.get(label)
        similarity = [sum(found) / len(found) if found else None] if cosines else []
        shares = (one.distinct_1, one.distinct_2, one.copies, one.folded_copies, one.overlap)
        rows.append([label, one.texts, one.mean_words, *shares, *similarity])
    note = (
        f"Of accepted texts, {MOST_ROWS:,} rows at most. distinct-n: different n-grams of words over all of them, of "
        f"the first {MOST_FOR_DISTINCT:,} texts. Folded copies equal the text they were written for but for case and "
        "punctuation, which n-grams and overlap leave out too. Overlap: mean Jaccard of the words of both."
    )
    heads = [
        Column("label"),
        Column("texts", ","),
        Column("words", ".1f"),
        *columns("distinct-1", "distinct-2", number=".3f"),
        *columns("copies", "folded copies", number=".1%"),
        *columns("overlap", *(["similarity"] if cosines else []), number=".3f"),
    ]
    return Section("Texts", [note, Table(heads, rows), *drawn])


def _example(example: Example) -> Table:
    given = [] if example.x1 is None else [("x1", example.x1)]
    return Table(columns("", "text"), [*given, *((f"y = {label}", text) for label, text in example.texts.items())])
