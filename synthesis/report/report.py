"""The quality report beside a data set: report.md, and report.html with plots, from the manifest and the shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from files.page import Picture, Section, in_markdown, page
from files.tables import Column, Table, columns
from files.whole import write_whole
from synthesis.report.measures import Example, Measured, draw_examples, measure
from synthesis.report.plots import draw_plots, names_of
from synthesis.shards.store import read_entries

EXAMPLES = 8
SEED = 42


def write_report(folder: Path, manifest: dict[str, Any]) -> dict[str, Measured]:
    """Write both files about texts that were written for labels; what was measured."""
    spec, counts = manifest["identity"]["spec"], manifest["counts"]
    labels = list(spec["labels"])
    measured = measure(read_entries(folder), labels)
    lead = (
        f"{counts['accepted']:,} of {counts['samples']:,} sampled texts were accepted ({counts['yield']:.1%}), for "
        f"{counts['inputs']:,} inputs, by {manifest['generator']['name']}." + unfinished(manifest)
    )
    names = names_of(labels)
    key = "; ".join(f"{number} is {label}" for number, label in names.numbered().items())
    plots: list[str | Picture] = [f"In the plots {key}."] if key else []
    plots += draw_plots(measured, counts, names, pairs=manifest["identity"]["kind"] == "x2")
    sections = [_yields(counts, labels), _measures(measured), _reasons(counts, labels)]
    examples = draw_examples(read_entries(folder), labels, EXAMPLES, SEED)
    write_both(folder, f"Data set {spec['task_name']}", lead, sections, plots, examples)
    return measured


def unfinished(manifest: dict[str, Any]) -> str:
    return "" if manifest["complete"] else " It is not finished."


def write_both(
    folder: Path,
    title: str,
    lead: str,
    sections: Sequence[Section],
    plots: Sequence[str | Picture],
    examples: Sequence[Example],
) -> None:
    """Write report.md, and report.html, which has the plots too."""
    last = Section(
        "Examples", ["Drawn at random.", *map(_example, examples)] if examples else ["No text was accepted."]
    )
    on_page = [*sections, Section("Plots", plots), last]
    write_whole(folder / "report.md", in_markdown(title, [*sections, last], [lead]))
    write_whole(folder / "report.html", page(title, on_page, [lead]))


def _yields(counts: dict[str, Any], labels: Sequence[str]) -> Section:
    none = {"samples": 0, "accepted": 0, "yield": 0.0}
    each = [(label, counts["labels"].get(label, none)) for label in labels] + [("all", counts)]
    heads = [Column("label"), *columns("sampled", "accepted", number=","), Column("yield", ".1%")]
    table = Table(heads, [(label, one["samples"], one["accepted"], one["yield"]) for label, one in each])
    return Section("Yield", ["Texts that were sampled, and those that passed the filters.", table])


def _measures(measured: dict[str, Measured]) -> Section:
    rows = [
        (label, one.mean_words, one.distinct_1, one.distinct_2, one.copies, one.folded_copies, one.overlap)
        for label, one in measured.items()
    ]
    note = (
        "Of the accepted texts. distinct-n: different n-grams of words over all of them, of the first 20,000 texts. "
        "Folded copies equal x1 but for case and punctuation, which n-grams and overlap leave out too. "
        "Overlap: mean Jaccard of the words of x1 and x2."
    )
    heads = [
        Column("label"), Column("words", ".1f"), *columns("distinct-1", "distinct-2", number=".3f"),
        *columns("copies", "folded copies", number=".1%"), Column("overlap", ".3f"),
    ]  # fmt: skip
    return Section("Texts", [note, Table(heads, rows)])


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
