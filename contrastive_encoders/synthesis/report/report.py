"""Write the report on a dataset, ``report.html``."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.reports.figure import Figure, RenderError
from contrastive_encoders.reports.page import ReportSection, page
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.synthesis.report.examples import (
    Embed,
    add_cosines,
    cosines_by_label,
    draw_examples,
    examples_section,
)
from contrastive_encoders.synthesis.report.measures import MAX_DISTINCT_TEXTS, LabelStatistics, measure
from contrastive_encoders.synthesis.report.near_duplicates import near_duplicates_section
from contrastive_encoders.synthesis.report.sections import about_labels, about_triplets
from contrastive_encoders.synthesis.report.texts import MAX_ROWS, read_texts

SEED = 42

log = logging.getLogger(__name__)


class Encoder(NamedTuple):
    """Name and embedding function of the encoder whose similarities a report shows."""

    name: str
    embed: Embed


def write_report(folder: Path, manifest: Mapping[str, Any], encoder: Encoder | None = None) -> None:
    """Write report.html. If ``encoder`` is given, the report contains the similarities of the texts."""
    from contrastive_encoders.synthesis.report.figures import lengths, overlaps, similarities  # imports Altair

    texts = read_texts(folder, manifest)
    subject = (about_triplets if manifest["identity"]["kind"] == "triplets" else about_labels)(manifest, texts)
    measured = measure(texts.accepted, subject.labels)
    examples, cosines = draw_examples(texts, SEED), dict[str, list[float]]()
    if encoder is not None:
        examples = add_cosines(examples, encoder.embed)
        cosines = cosines_by_label(texts, encoder.embed, SEED)
    figures = [lengths(measured)]
    if any(one.x1 is not None for one in texts.accepted):
        figures.append(overlaps(measured))
    if encoder is not None and cosines:
        figures.append(similarities({label: cosines.get(label, []) for label in measured}, encoder.name))
    sections = [
        *subject.sections,
        _texts(measured, cosines, figures),
        near_duplicates_section(texts.accepted, subject.labels),
        examples_section(examples),
    ]
    lead = [subject.lead + ("" if manifest["complete"] else " It is not finished.")]
    try:
        html = page(subject.title, sections, lead, key=subject.labels)
    except RenderError as error:
        log.warning("%s has no figures: %s", folder / "report.html", error)
        tables = [one._replace(parts=[part for part in one.parts if not isinstance(part, Figure)]) for one in sections]
        html = page(subject.title, tables, lead, key=subject.labels)
    atomic_write(folder / "report.html", html)


def _texts(
    measured: Mapping[str, LabelStatistics], cosines: Mapping[str, Sequence[float]], drawn: Sequence[Figure]
) -> ReportSection:
    rows = []
    for label, one in measured.items():
        found = cosines.get(label)
        similarity = [sum(found) / len(found) if found else None] if cosines else []
        shares = (one.distinct_1, one.distinct_2, one.copies, one.folded_copies, one.overlap)
        rows.append([label, one.texts, one.mean_words, *shares, *similarity])
    note = (
        f"Accepted texts, at most {MAX_ROWS:,} rows. distinct-n: distinct n-grams of words over all n-grams of the "
        f"first {MAX_DISTINCT_TEXTS:,} texts. Folded copies equal the text for which they were written except for case "
        "and punctuation, which n-grams and overlap also ignore. Overlap: mean Jaccard similarity of the words of both."
    )
    heads = [
        Column("label"),
        Column("texts", ","),
        Column("words", ".1f"),
        *columns("distinct-1", "distinct-2", number=".3f"),
        *columns("copies", "folded copies", number=".1%"),
        *columns("overlap", *(["similarity"] if cosines else []), number=".3f"),
    ]
    return ReportSection("Texts", [note, Table(heads, rows), *drawn])
