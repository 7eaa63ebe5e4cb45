"""The preview in a terminal and as a page; colours are never alone: every part says its role."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table as Bars
from rich.text import Text

from files.page import Section, environment, page
from files.tables import Cell, Column, Table, columns
from preview.summary import Histogram, Preview

STYLES = {
    "anchor": "bold cyan", "positive": "green", "hard negative": "red", "easy negative": "yellow",
    "sentence": "bold cyan", "left": "bold cyan", "right": "green", "premise": "bold cyan", "hypothesis": "green",
    "source": "bold cyan", "target": "green",
}  # fmt: skip
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
    """Each length, a bar as long as its share of the highest, and the count."""
    ends = zip(one.edges, one.edges[1:], one.counts, strict=False)
    return [(f"{low} to {high - 1}", "█" * round(BAR * count / max(one.counts)), count) for low, high, count in ends]


def as_page(previews: Sequence[Preview], command: str) -> str:
    """One HTML file that needs nothing beside it."""
    sections = [section for preview in previews for section in _sections(preview)]
    return page("Preview of a batch", sections, [command], style=CSS)


def _sections(preview: Preview) -> list[Section]:
    facts = Table(columns("of a batch", "value"), preview.facts, preview.title)
    heads = [*columns("tokens", "share of the highest"), Column("count", ",")]
    lengths = [
        Table(heads, [[name, Cell(bar, mark=one.role.replace(" ", "-")), count] for name, bar, count in _counted(one)],
              _lengths(one))
        for one in preview.histograms
    ]  # fmt: skip
    examples = environment(Path(__file__).parent).get_template("examples.html.j2").render(preview=preview)
    of = f" of {preview.part}" if preview.part else ""
    return [
        Section(f"Batches{of}", [facts]), Section(f"Lengths{of}", lengths),
        Section(f"Examples{of}", [_markup(examples)]),
    ]  # fmt: skip


def _markup(source: str) -> str:
    """A text that the page shows as HTML."""
    from markupsafe import Markup

    return Markup(source)
