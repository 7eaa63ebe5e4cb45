"""Tables of reports, written as Markdown, for a terminal, or on a page.

The page of a report shows the same tables (``contrastive_encoders/reports/page.py``).
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable

EMPTY = float("-inf")  # sort value of an empty cell: below every number
MAX_CHARACTERS = 300  # maximum length of a user's text in a report
# Characters in a terminal's line: of a name that has little room and of one that has more, of a word of a heading
MAX_NAME, USUAL_NAME, MAX_WORD = 16, 28, 10
CODE = "code"  # mark of a cell with a name of the program: not escaped, in code font


class Column(NamedTuple):
    heading: str
    number: str = ""  # format specification of its numbers, such as ",.2f"
    right: bool = False  # align texts right; formatted numbers always are

    @property
    def align_right(self) -> bool:
        return self.right or bool(self.number)


class Cell(NamedTuple):
    """A cell of a table. It is only needed if the value is not formatted like its column, or is highlighted or
    linked.
    """

    text: str
    sort: float | str | None = None  # None: sort by the text
    mark: str = ""  # class of the page's style sheet: best, differs, warn, code
    links: tuple[tuple[str, str], ...] = ()  # names and files (relative to the report), instead of the text
    shade: float | None = None  # 0 to 1: intensity of the color on a page, as in a heat map
    values: tuple[float, ...] | None = None  # for programs, if `sort` is not the value: (), or several numbers


class Table(NamedTuple):
    """A table of a report. The first column names the row. A value is a string, a number, None (empty), or a Cell."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    note: str = ""
    name: str = ""  # id in a page
    folded: bool = False  # a page shows it when its title is clicked
    hint: str = ""  # how to use it on a page

    def cells(self) -> list[list[Cell]]:
        """Return the cells of all rows, formatted as they are shown."""
        return [[_cell(value, column) for value, column in zip(row, self.columns, strict=True)] for row in self.rows]

    def numbers(self) -> list[list[float | str | list[float] | None]]:
        """Return the unformatted values of all rows, for programs: numbers are unchanged, several numbers are a list, a
        missing value is None, and any other value is a string.
        """
        return [[_value(cell) for cell in row] for row in self.cells()]


def columns(*headings: str, number: str = "", right: bool = False) -> list[Column]:
    """Return columns with the given headings, all in the same format."""
    return [Column(heading, number, right) for heading in headings]


def markdown(table: Table) -> str:
    """Return a table as Markdown, without its title and note."""
    if not table.rows:
        return "None."
    head = [escape(column.heading) for column in table.columns]
    rule = ["---:" if column.align_right else "---" for column in table.columns]
    rows = [head, rule, *([_cell_to_markdown(cell) for cell in row] for row in table.cells())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escape(text: str) -> str:
    """Return a string on one line, escaped so that Markdown shows every character unchanged."""
    line = re.sub(r"([|\\*_`<>\[\]&~$#])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+.)])(?=[- ]|$)", r"\1\\\2", line)  # what would start a list, or be a rule


def shorten(text: str) -> str:
    """Truncate a string to ``MAX_CHARACTERS`` characters, followed by "..."."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} ..."


def fence(text: str) -> str:
    """Return a string as a Markdown code block, whose fence is longer than any fence in the string."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def code(text: str) -> str:
    """Return a string on one line as inline code of Markdown."""
    line = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    edge = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{edge}{line}{edge}{fence}" if line else ""


def split_to_fit(table: Table, width: int, optional: Sequence[str] = ()) -> list[Table]:
    """Split a table into tables that fit a terminal of ``width`` characters.

    The last ``optional`` columns are omitted if there are too many. Other columns are split into several tables, each
    with the first column.
    """
    columns_to_show = list(range(len(table.columns)))
    widths = min_widths(table)
    for heading in reversed(optional):
        if _width([widths[place] for place in columns_to_show]) > width:
            columns_to_show = [place for place in columns_to_show if table.columns[place].heading != heading]
    parts = [[columns_to_show[0]]]
    for place in columns_to_show[1:]:
        if len(parts[-1]) > 1 and _width([widths[one] for one in (*parts[-1], place)]) > width:
            parts.append([columns_to_show[0]])
        parts[-1].append(place)
    return [
        table._replace(
            columns=[table.columns[place] for place in part],
            rows=[[row[place] for place in part] for row in table.rows],
            title=table.title if part is parts[0] else "",
        )
        for part in parts
    ]


def min_widths(table: Table) -> list[int]:
    """Return the minimum width of each column.

    Numbers and names of the program are not truncated. Other names in the first column, and headings, wrap.
    """
    longest = [max((len(cell.text) for cell in column), default=0) for column in zip(*table.cells(), strict=True)]
    longest = longest or [0] * len(table.columns)
    names, *others = longest
    words = [max(map(len, re.split(r"[ /]", column.heading))) for column in table.columns[1:]]
    may_wrap = not any(cell.mark == CODE for cell in next(zip(*table.cells(), strict=True), ()))
    return [
        min(names, MAX_NAME) if may_wrap else names,
        *(max(cells, min(word, MAX_WORD)) for cells, word in zip(others, words, strict=True)),
    ]


def _width(widths: Sequence[int]) -> int:
    return sum(width + 3 for width in widths) + 1  # a border and two spaces for each column


def fit_widths(table: Table, width: int) -> list[int]:
    """Distribute ``width`` characters over the columns. After the minimum widths, the first column (names) is widened
    to its usual width, then the other columns to their full widths, and finally the first column again.
    """
    widths = min_widths(table)
    natural = [
        max(len(column.heading), *(len(cell.text) for cell in cells))
        for column, cells in zip(table.columns, zip(*table.cells(), strict=True), strict=True)
    ]
    for place, target in [(0, min(natural[0], USUAL_NAME)), *enumerate(natural[1:], start=1), (0, natural[0])]:
        widths[place] += max(0, min(target - widths[place], width - _width(widths)))
    return widths


def to_terminal_table(table: Table, width: int | None = None) -> "TerminalTable":
    """Convert a table to a table of rich, for printing in a terminal. If `split_to_fit` made the table, it is at most
    ``width`` characters wide.
    """
    from rich.table import Table as TerminalTable
    from rich.text import Text

    terminal_table = TerminalTable(title=Text(table.title) if table.title else None, title_justify="left")
    widths = fit_widths(table, width) if width is not None and table.rows else [None] * len(table.columns)
    for column, columns_width in zip(table.columns, widths, strict=True):
        justify: Any = "right" if column.align_right else "left"
        terminal_table.add_column(Text(column.heading), justify=justify, overflow="fold", width=columns_width)
    for row in table.cells():
        terminal_table.add_row(*(Text(cell.text) for cell in row))
    return terminal_table


def _cell(value: Any, column: Column) -> Cell:
    """Convert a value to a cell. NaN is sorted like an empty cell."""
    if isinstance(value, Cell):
        return value._replace(sort=EMPTY) if value.sort != value.sort else value
    if value is None:
        return Cell("", EMPTY)
    if isinstance(value, str) or not column.number:
        return Cell(str(value))
    return Cell(format(value, column.number), float(value) if value == value else EMPTY)


def _value(cell: Cell) -> float | str | list[float] | None:
    if cell.values is not None:
        return list(cell.values) or None
    if not isinstance(cell.sort, float | int):
        return cell.text
    return None if cell.text == "" or abs(cell.sort) == float("inf") else cell.sort


def _cell_to_markdown(cell: Cell) -> str:
    if cell.links:
        return ", ".join(f"[{escape(name)}]({quote(target)})" for name, target in cell.links)
    if cell.mark == CODE:
        return code(cell.text).replace("|", "\\|")
    return escape(cell.text)
