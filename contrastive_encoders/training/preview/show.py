"""Display of a preview on a terminal, and its figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table as Bars
from rich.text import Text

from contrastive_encoders.reports.figure import SERIES, Figure
from contrastive_encoders.training.preview.span_positions import SpanLayout, span_panel
from contrastive_encoders.training.preview.summary import Histogram, Preview

if TYPE_CHECKING:
    import altair as alt

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
MASKING_STYLES = {"mask": "reverse", "random": "underline", "kept": "dim reverse"}
BAR = 40
MAX_TEXT_CHARS = 240


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
            room = MAX_TEXT_CHARS
            for piece in part.pieces:
                line.append(piece.text[:room], style=MASKING_STYLES.get(piece.masking, "not bold"))
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
    """Return a row for each range of lengths: the range, a bar scaled to the highest count, and the count."""
    ends = zip(one.edges, one.edges[1:], one.counts, strict=False)
    return [(f"{low} to {high - 1}", "█" * round(BAR * count / max(one.counts)), count) for low, high, count in ends]


def picture(previews: Sequence[Preview], documents: Sequence[SpanLayout]) -> Figure:
    """Return the figure of a preview: histograms of lengths by role, and the positions of spans in ``documents``."""
    panels = [panel for one in previews for panel in _lengths_panels(one)]
    panels += [span_panel(documents)] if documents else []
    return Figure("preview", "Preview of a batch", "", panels, columns=2, width=520)


def _lengths_panels(preview: Preview) -> "list[alt.TopLevelMixin]":
    import altair as alt

    panels = list[alt.TopLevelMixin]()
    for color, one in zip(SERIES, preview.histograms, strict=False):
        bars = [
            {"from": low, "to": high, "count": count}
            for low, high, count in zip(one.edges, one.edges[1:], one.counts, strict=False)
        ]
        chart = alt.Chart({"values": bars}).mark_bar(color=color, binSpacing=1)
        chart = chart.encode(
            x=alt.X("from:Q", bin="binned", title="tokens", scale=alt.Scale(zero=False), axis=alt.Axis(grid=False)),
            x2="to:Q",
            y=alt.Y("count:Q", title="sequences"),
        )
        title = f"{preview.part}{': ' if preview.part else ''}{_lengths(one)}"
        panels.append(chart.properties(height=180, title=title))
    return panels
