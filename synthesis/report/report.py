"""The quality report beside a data set: report.md, and report.html with plots, from the manifest and the shards."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from files.whole import write_whole
from synthesis.report.measures import Example, Measured, draw_examples, measure
from synthesis.report.plots import draw_plots, names_of
from synthesis.shards.store import read_entries

EXAMPLES = 8
SEED = 42
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #bbb;padding:.3rem .6rem;text-align:left}"
    "td.n,th.n{text-align:right}img{max-width:100%}"
)


class Table(NamedTuple):
    """A title, what its columns are, and rows of texts."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Report(NamedTuple):
    """What both forms of the report show."""

    title: str
    lead: str
    tables: list[Table]
    examples: list[Example]
    measured: dict[str, Measured]
    manifest: dict[str, Any]


def write_report(folder: Path, manifest: dict[str, Any]) -> dict[str, Measured]:
    """Both files; what was measured."""
    report = make_report(folder, manifest)
    write_whole(folder / "report.md", as_markdown(report).encode())
    write_whole(folder / "report.html", as_page(report).encode())
    return report.measured


def make_report(folder: Path, manifest: dict[str, Any]) -> Report:
    labels = list(manifest["identity"]["spec"]["labels"])
    measured = measure(read_entries(folder), labels)
    examples = draw_examples(read_entries(folder), labels, EXAMPLES, SEED)
    counts = manifest["counts"]
    state = "" if manifest["complete"] else " It is not finished."
    lead = (
        f"{counts['accepted']:,} of {counts['samples']:,} sampled texts were accepted ({counts['yield']:.1%}), for "
        f"{counts['inputs']:,} inputs, by {manifest['generator']['name']}.{state}"
    )
    tables = [_yields(counts, labels), _measures(measured), _reasons(counts, labels)]
    task = manifest["identity"]["spec"]["task_name"]
    return Report(f"Data set {task}", lead, tables, examples, measured, manifest)


def _yields(counts: dict[str, Any], labels: Sequence[str]) -> Table:
    rows = []
    for label in labels:
        one = counts["labels"].get(label, {"samples": 0, "accepted": 0, "yield": 0.0})
        rows.append((label, f"{one['samples']:,}", f"{one['accepted']:,}", f"{one['yield']:.1%}"))
    rows.append(("all", f"{counts['samples']:,}", f"{counts['accepted']:,}", f"{counts['yield']:.1%}"))
    return Table(
        "Yield",
        "Texts that were sampled, and those that passed the filters.",
        ("label", "sampled", "accepted", "yield"),
        rows,
    )


def _measures(measured: dict[str, Measured]) -> Table:
    rows = [
        (
            label,
            f"{one.mean_words:.1f}",
            f"{one.distinct_1:.3f}",
            f"{one.distinct_2:.3f}",
            f"{one.copies:.1%}",
            f"{one.folded_copies:.1%}",
            f"{one.overlap:.3f}",
        )
        for label, one in measured.items()
    ]
    note = (
        "Of the accepted texts. distinct-n: different n-grams of words over all of them, of the first 20,000 texts. "
        "Folded copies equal x1 but for case and punctuation, which n-grams and overlap leave out too. "
        "Overlap: mean Jaccard of the words of x1 and x2."
    )
    return Table(
        "Texts", note, ("label", "words", "distinct-1", "distinct-2", "copies", "folded copies", "overlap"), rows
    )


def _reasons(counts: dict[str, Any], labels: Sequence[str]) -> Table:
    rows = []
    for reason, number in sorted(counts["rejected"].items(), key=lambda item: -item[1]):
        each = [counts["labels"].get(label, {}).get("rejected", {}).get(reason, 0) for label in labels]
        rows.append((reason, f"{number:,}", *(f"{one:,}" for one in each)))
    return Table("Rejected", "The first reason that applied.", ("reason", "all", *labels), rows)


def as_markdown(report: Report) -> str:
    parts = [f"# {report.title}", report.lead]
    for table in report.tables:
        parts += [f"## {table.title}", table.note, _markdown_table(table)]
    parts += ["## Examples", "Drawn at random."]
    parts += [_markdown_example(example) for example in report.examples] or ["No text was accepted."]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    if not table.rows:
        return "None."
    lines = [table.header, ["---"] + ["---:"] * (len(table.header) - 1), *table.rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _markdown_example(example: Example) -> str:
    rows = _example_rows(example)
    return "\n".join(["| | |", "| --- | --- |", *(f"| {_cell(name)} | {_cell(text)} |" for name, text in rows)])


def _example_rows(example: Example) -> list[tuple[str, str]]:
    rows = [] if example.x1 is None else [("x1", example.x1)]
    return rows + [(f"y = {label}", text) for label, text in example.texts.items()]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") or " "


def as_page(report: Report, plots: str | None = None) -> str:
    """One file without scripts or links: the plots are in it. ``plots``: instead of those of labelled texts."""
    safe = html.escape
    parts = [f"<h1>{safe(report.title)}</h1><p>{safe(report.lead)}</p>"]
    for table in report.tables:
        parts.append(f"<h2>{safe(table.title)}</h2><p>{safe(table.note)}</p>{_html_table(table)}")
    parts.append(f"<h2>Plots</h2>{_plots(report) if plots is None else plots}")
    parts.append("<h2>Examples</h2><p>Drawn at random.</p>")
    for example in report.examples:
        rows = _example_rows(example)
        cells = "".join(f"<tr><th>{safe(name)}</th><td>{safe(text)}</td></tr>" for name, text in rows)
        parts.append(f"<table>{cells}</table>")
    head = f'<meta charset="utf-8"><title>{safe(report.title)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _plots(report: Report) -> str:
    names = names_of(list(report.measured))
    pairs = report.manifest["identity"]["kind"] == "x2"
    plots = "".join(draw_plots(report.measured, report.manifest["counts"], names, pairs=pairs))
    key = "; ".join(f"{number} is {label}" for number, label in names.numbered().items())
    return (f"<p>In the plots {html.escape(key)}.</p>" if key else "") + plots


def _html_table(table: Table) -> str:
    if not table.rows:
        return "<p>None.</p>"
    header = "".join(
        f"<th{' class=n' * bool(place)}>{html.escape(cell)}</th>" for place, cell in enumerate(table.header)
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' * bool(place)}>{html.escape(cell)}</td>" for place, cell in enumerate(row))
        + "</tr>"
        for row in table.rows
    )
    return f"<table><tr>{header}</tr>{rows}</table>"
