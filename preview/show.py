"""The preview in a terminal and as a page; colours are never alone: every part says its role."""

from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from preview.summary import Histogram, Preview

STYLES = {
    "anchor": "bold cyan", "positive": "green", "hard negative": "red", "easy negative": "yellow",
    "sentence": "bold cyan",     "left": "bold cyan", "right": "green", "premise": "bold cyan", "hypothesis": "green",
    "source": "bold cyan", "target": "green",
}  # fmt: skip
FATES = {"mask": "reverse", "random": "underline", "kept": "dim reverse"}
BAR = 40


def show(preview: Preview, console: Console) -> None:
    facts = Table(title=f"{preview.kind}, {preview.batches} batches", title_justify="left", show_header=False)
    for name, value in preview.facts:
        facts.add_row(name, value)
    console.print(facts, highlight=False)
    for one in preview.histograms:
        console.print(_bars(one), highlight=False)
    for example in preview.examples:
        lines = []
        for part in example.parts:
            line = Text(f"{part.role} ({part.tokens} tokens)  ", style=STYLES.get(part.role, ""))
            for piece in part.pieces:
                line.append(piece.text, style=FATES.get(piece.fate, "not bold"))
            lines.append(line)
        console.print(Panel(Group(*lines), title=example.name, title_align="left"))


def _bars(one: Histogram) -> Table:
    table = Table(
        title=f"{one.role}: {one.shortest} to {one.longest} tokens, median {one.median:g}",
        title_justify="left", show_header=False, box=None
    )  # fmt: skip
    for low, high, count in zip(one.edges, one.edges[1:], one.counts, strict=False):
        table.add_row(
            f"{low} to {high - 1}",
            Text("█" * round(BAR * count / max(one.counts)), style=STYLES.get(one.role, "")),
            str(count),
        )
    return table


def page(preview: Preview, command: str) -> str:
    """One HTML file that needs nothing beside it."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    return environment.get_template("page.html.j2").render(preview=preview, command=command)
