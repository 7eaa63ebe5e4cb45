"""The preview on a terminal and as an HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table as Bars
from rich.text import Text

from contrastive_encoders.reports.figure import Figure
from contrastive_encoders.reports.page import Section, environment, page
from contrastive_encoders.reports.tables import Column, Table, columns
from contrastive_encoders.training.preview.span_positions import figures as figures_of_places
from contrastive_encoders.training.preview.summary import Histogram, Preview

STYLES = {
    "anchor": "bold cyan",
    "positive": "green",
    "hard negative": "red",
    "easy negative": "yellow",
    "sentence": "bold cyan",
    "left": "bold cyan",
    "right": "green",
    "premise": "bold cyan",
    "hypothesis": "green",
    "source": "bold cyan",
    "target": "green",
}
FATES = {"mask": "reverse", "random": "underline", "kept": "dim reverse"}
BAR = 40
CLIPPED = 240  # characters of a text on a terminal; the page has all
# The same roles on the page, whose colours are light and dark
CSS = """
:root { --anchor: #005a8c; --positive: #00694d; --hard: #a8321a; --easy: #7a5200; --mask: #cfe6ff; }
@media (prefers-color-scheme: dark) {
  :root { --anchor: #7cc4f5; --positive: #5fd3ab; --hard: #ff9d85; --easy: #e8bf5f; --mask: #1d4a75; }
}
article { border: 1px solid var(--line); border-radius: .3rem; padding: .2rem 1rem; margin: 1rem 0; }
dt { font-weight: 600; } dd { margin: 0 0 .6rem 1.2rem; overflow-wrap: anywhere; white-space: pre-wrap; }
.anchor, .sentence, .left, .premise, .source { color: var(--anchor); }
.positive, .right, .hypothesis, .target { color: var(--positive); }
.hard-negative { color: var(--hard); } .easy-negative { color: var(--easy); }
mark { background: var(--mask); color: inherit; border-radius: .2rem; }
mark.kept { outline: 1px dashed currentColor; background: none; } mark.random { text-decoration: underline wavy; }
"""


def show_facts(facts: Sequence[tuple[str, str]], console: Console) -> None:
    for name, value in facts:
        console.print(f"{name:<14}{value}", highlight=False, markup=False, soft_wrap=True)


def show(preview: Preview, console: Console) -> None:
    facts = Bars(title=preview.title, title_justify="left", show_header=False)
    for name, value in preview.facts:
        facts.add_row(name, value)
    console.print(facts, highlight=False)
    for one in preview.histograms:
        console.print(_bars(one), highlight=False)
    for example in preview.examples:
        lines = []
        for part in example.parts:
            line = Text(f"{part.role} ({part.tokens} tokens)  ", style=STYLES.get(part.role, ""))
            room = CLIPPED
            for piece in part.pieces:
                line.append(piece.text[:room], style=FATES.get(piece.fate, "not bold"))
                room -= len(piece.text)
                if room < 0:
                    line.append(" ...")
                    break
            lines.append(line)
        console.print(Panel(Group(*lines), title=example.name, title_align="left"))


def _bars(one: Histogram) -> Bars:
    table = Bars(title=_lengths(one), title_justify="left", show_header=False, box=None)
    for name, bar, count in _counted(one):
        table.add_row(name, Text(bar, style=STYLES.get(one.role, "")), str(count))
    return table


def _lengths(one: Histogram) -> str:
    return f"{one.role}: {one.shortest} to {one.longest} tokens, median {one.median:g}"


def _counted(one: Histogram) -> list[tuple[str, str, int]]:
    """Return each length with its bar, scaled to the highest count, and its count."""
    ends = zip(one.edges, one.edges[1:], one.counts, strict=False)
    return [(f"{low} to {high - 1}", "█" * round(BAR * count / max(one.counts)), count) for low, high, count in ends]


def as_page(previews: Sequence[Preview], facts: Sequence[tuple[str, str]], command: str) -> str:
    """Return the preview as a self-contained HTML page. ``facts`` describe the data as a whole."""
    of_all = [Section("Data", [Table(columns("of the data", "value"), facts)])] if facts else []
    sections = of_all + [section for preview in previews for section in _sections(preview)]
    return page("Preview of a batch", sections, [command], style=CSS)


def _sections(preview: Preview) -> list[Section]:
    facts = Table(columns("of a batch", "value"), preview.facts, preview.title)
    places = figures_of_places(preview.first, preview.draws) if preview.draws else []
    twice = Table(
        [Column("text"), Column("times in a batch", ",")],
        preview.repeated,
        "Texts that a batch has more than once",
        "Whatever their roles. Where such a text is another row's negative, it is pushed away from itself.",
    )
    examples = environment(Path(__file__).parent).get_template("examples.html.j2").render(preview=preview)
    of, name = (f" of {preview.part}", f"-{preview.part}") if preview.part else ("", "")
    drawn = [_lengths_drawn(preview), _padding_drawn(preview)]
    masks = [_masks_drawn(preview)] if preview.masks.get("predicted") else []
    return [
        Section(f"Batches{of}", [facts]),
        *([Section(f"Spans{of}", places)] if places else []),
        Section(f"Lengths and padding{of}", [one._replace(name=one.name + name) for one in drawn]),
        *([Section(f"Masks{of}", [one._replace(name=one.name + name) for one in masks])] if masks else []),
        Section(f"Duplicates{of}", [twice] if preview.repeated else ["No text stands in a batch twice."]),
        Section(f"Examples{of}", [_markup(examples)]),
    ]


def _lengths_drawn(preview: Preview) -> Figure:
    panels = list[dict[str, Any]]()
    for one in preview.histograms:
        bars = [
            {"from": low, "to": high, "tokens": f"{low} to {high - 1}", "count": count}
            for low, high, count in zip(one.edges, one.edges[1:], one.counts, strict=False)
        ]
        x = {"type": "quantitative", "title": "tokens", "scale": {"zero": False}, "axis": {"grid": False}}
        panels.append(
            {
                "height": 180,
                "data": {"values": bars},
                "title": {"text": _lengths(one), "fontWeight": "normal"},
                "mark": {"type": "bar", "color": "@c1", "binSpacing": 1},
                "encoding": {
                    "x": {**x, "field": "from", "bin": "binned"},
                    "x2": {"field": "to"},
                    "y": {"field": "count", "type": "quantitative", "title": None},
                    "tooltip": [{"field": "tokens"}, {"field": "count", "format": ","}],
                },
            }
        )
    rows = [[one.role, name, count] for one in preview.histograms for name, _, count in _counted(one)]
    table = Table([*columns("role", "tokens"), Column("count", ",")], rows)
    return Figure("lengths", "Lengths", f"Of {preview.batches} batches, special tokens counted.", panels, table)


def _padding_drawn(preview: Preview) -> Figure:
    real, whole, chunks = preview.padding
    ways = (("padded to its longest", whole), ("in chunks", chunks))
    parts = [
        {"way": way, "what": what, "tokens": tokens, "share": tokens / all_of_it}
        for way, all_of_it in ways
        for what, tokens in (("real tokens", real), ("padding", all_of_it - real))
    ]
    caption = "Tokens of a batch that are computed where a family is padded, on average. Chunks are of like lengths."
    return Figure("padding", "Padding before and after a batch is cut in chunks", caption, [_stacked(parts, "way")])


def _masks_drawn(preview: Preview) -> Figure:
    predicted = preview.masks["predicted"]
    shares = {"masked": "masked", "replaced": "replaced by another", "kept": "predicted, but kept"}
    parts = [{"way": "anchors", "what": "as they are", "tokens": 1 - predicted, "share": 1 - predicted}]
    for name, what in shares.items():
        share = predicted * preview.masks[name]
        parts.append({"way": "anchors", "what": what, "tokens": share, "share": share})
    return Figure(
        "masks", "What the model sees of the anchors' tokens", "Shares of all.", [_stacked(parts, "way", ".0%")]
    )


def _stacked(parts: list[dict[str, Any]], field: str, form: str = ",.0f") -> dict[str, Any]:
    whats = list(dict.fromkeys(part["what"] for part in parts))
    parts = [{**part, "place": whats.index(part["what"])} for part in parts]
    colours = {"domain": whats, "range": ["@c1", "@c2", "@c3", "@c4"][: len(whats)]}
    return {
        "height": {"step": 38},
        "data": {"values": parts},
        "mark": {"type": "bar", "cornerRadius": 2},
        "encoding": {
            "y": {"field": field, "type": "nominal", "title": None, "sort": None},
            "x": {"field": "tokens", "type": "quantitative", "title": None, "axis": {"format": form, "grid": False}},
            "order": {"field": "place", "type": "quantitative"},
            "color": {"field": "what", "type": "nominal", "scale": colours, "legend": {"orient": "top", "title": None}},
            "tooltip": [{"field": "what"}, {"field": "tokens", "format": form}, {"field": "share", "format": ".1%"}],
        },
    }


def _markup(source: str) -> str:
    """A text that the page shows as HTML."""
    from markupsafe import Markup

    return Markup(source)
