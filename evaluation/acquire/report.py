"""What ``fetch``, ``check`` and ``listing`` say: one row per table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLOURS = {
    "ok": "green",
    "fetched": "green",
    "kept": "green",
    "there": "green",
    "missing": "yellow",
    "absent": "yellow",
}


class Row(NamedTuple):
    table: str  # "STS12/test"
    state: str  # fetched, kept, failed | ok, missing, short, long, damaged | there, absent
    detail: str  # rows and origin, or what is wrong and what to do


class Report(NamedTuple):
    rows: Sequence[Row]
    well: bool  # nothing that was asked for is missing or wrong

    def render(self) -> "Iterator[RenderableType]":
        """For a terminal: a table, and a line that counts the states."""
        from rich.table import Column, Table
        from rich.text import Text

        # a path that is wider than the terminal is broken, not cut
        table = Table("table", "state", Column(overflow="fold"), box=None, padding=(0, 2, 0, 0))
        for row in self.rows:
            table.add_row(Text(row.table), Text(row.state, _COLOURS.get(row.state, "bold red")), Text(row.detail))
        yield table
        yield ", ".join(f"{count} {state}" for state, count in Counter(row.state for row in self.rows).items())
