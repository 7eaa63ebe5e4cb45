"""The quality report beside a data set: report.html, and report.md with pictures, from the manifest and the shards."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from files.figure import Figure, NotDrawn, draw, library
from files.page import Section, in_markdown, page
from files.tables import Column, Table, columns
from files.whole import write_whole
from synthesis.report import figures, wall
from synthesis.report.doubles import doubles_section
from synthesis.report.measures import Example, Measured, draw_examples, measure
from synthesis.report.wall import Embed, ReportText
from synthesis.shards.store import ShardStore, read_entries

EXAMPLES = 8
SEED = 42

log = logging.getLogger(__name__)


class Encoder(NamedTuple):
    """By which texts are compared."""

    name: str
    embed: Embed


def write_report(folder: Path, manifest: dict[str, Any], encoder: Encoder | None = None) -> dict[str, Measured]:
    """Write the report about texts that were written for labels; what was measured."""
    spec, counts = manifest["identity"]["spec"], manifest["counts"]
    labels, pairs = list(spec["labels"]), manifest["identity"]["kind"] == "x2"
    measured = measure(read_entries(folder), labels)
    store, shards = ShardStore(folder), manifest["shards_planned"]
    records = store.records(shards)
    shown = wall.draw_wall(map(wall.accepted_of, read_entries(folder)), store.left_out(shards), labels, SEED)
    if encoder is not None:
        shown = wall.with_cosines(shown, encoder.embed)
    lead = (
        f"{counts['accepted']:,} of {counts['samples']:,} sampled texts were accepted ({counts['yield']:.1%}), for "
        f"{counts['inputs']:,} inputs, by {manifest['generator']['name']}." + unfinished(manifest)
    )
    sections = [
        _yields(counts, labels, [figures.fates(counts, labels), figures.over_time(records, labels)]),
        _measures(measured, shown, [*distributions(measured, shown, encoder, pairs=pairs)]),
        doubles_section(map(wall.accepted_of, read_entries(folder))),
        _reasons(counts, labels),
    ]
    examples = draw_examples(read_entries(folder), labels, EXAMPLES, SEED)
    title = f"Data set {spec['task_name']}"
    write_both(folder, title, lead, sections, Wall(shown, labels, counts["accepted"], wall.counted(counts)), examples)
    return measured


def unfinished(manifest: dict[str, Any]) -> str:
    return "" if manifest["complete"] else " It is not finished."


def distributions(
    measured: Mapping[str, Measured], shown: Sequence[ReportText], encoder: Encoder | None, *, pairs: bool
) -> list[Figure]:
    """Lengths, and of pairs what both texts share."""
    found = [figures.lengths(measured), *([figures.overlaps(measured)] if pairs else [])]
    if encoder is not None and (cosines := wall.cosines_of(shown)):
        found.append(figures.similarities({label: cosines.get(label, []) for label in measured}, encoder.name))
    return found


class Wall(NamedTuple):
    """The examples of the page, and how many texts of either kind there are."""

    shown: Sequence[ReportText]
    labels: Sequence[str]
    accepted: int
    left_out: int


def write_both(
    folder: Path, title: str, lead: str, sections: Sequence[Section], on: Wall, examples: Sequence[Example]
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
    some = Section(
        "Examples", ["Drawn at random.", *map(_example, examples)] if examples else ["No text was accepted."]
    )
    write_whole(folder / "report.md", in_markdown(title, [*sections, some], [lead]))
    first = wall.wall_section(on.shown, on.accepted, on.left_out) if on.shown else some
    html = page(
        title,
        [first, *sections],
        [lead],
        drawn=drawn,
        key=on.labels,
        style=wall.style(),
        scripts=[wall.script()],
        data={"wall": wall.data_of(on.shown, on.labels)},
    )
    write_whole(folder / "report.html", html)


def _yields(counts: dict[str, Any], labels: Sequence[str], drawn: Sequence[Figure | None]) -> Section:
    none = {"samples": 0, "accepted": 0, "yield": 0.0}
    each = [(label, counts["labels"].get(label, none)) for label in labels] + [("all", counts)]
    heads = [Column("label"), *columns("sampled", "accepted", number=","), Column("yield", ".1%")]
    table = Table(heads, [(label, one["samples"], one["accepted"], one["yield"]) for label, one in each])
    about = "Texts that were sampled, and those that passed the filters."
    return Section("Yield", [about, table, *(figure for figure in drawn if figure)])


def _measures(measured: dict[str, Measured], shown: Sequence[ReportText], drawn: Sequence[Figure]) -> Section:
    cosines = wall.cosines_of(shown)
    rows = [
        (
            label,
            one.mean_words,
            one.distinct_1,
            one.distinct_2,
            one.copies,
            one.folded_copies,
            one.overlap,
            *([mean(cosines.get(label, ()))] if cosines else []),
        )
        for label, one in measured.items()
    ]
    note = (
        "Of the accepted texts. distinct-n: different n-grams of words over all of them, of the first 20,000 texts. "
        "Folded copies equal x1 but for case and punctuation, which n-grams and overlap leave out too. "
        "Overlap: mean Jaccard of the words of x1 and x2."
    )
    heads = [
        Column("label"),
        Column("words", ".1f"),
        *columns("distinct-1", "distinct-2", number=".3f"),
        *columns("copies", "folded copies", number=".1%"),
        Column("overlap", ".3f"),
        *([Column("similarity", ".3f")] if cosines else []),
    ]
    return Section("Texts", [note, Table(heads, rows), *drawn])


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _reasons(counts: dict[str, Any], labels: Sequence[str]) -> Section:
    rows = [
        (reason, number, *(counts["labels"].get(label, {}).get("rejected", {}).get(reason, 0) for label in labels))
        for reason, number in sorted(counts["rejected"].items(), key=lambda item: -item[1])
    ]
    table = Table([Column("reason"), *columns("all", *labels, number=",")], rows)
    return Section("Rejected", ["The first reason that applied.", table])


def _example(example: Example) -> Table:
    given = [] if example.x1 is None else [("x1", example.x1)]
    return Table(columns("", "text"), [*given, *((f"y = {label}", text) for label, text in example.texts.items())])
