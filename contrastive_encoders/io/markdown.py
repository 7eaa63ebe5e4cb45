"""Extract the visible text of Markdown as a sequence of blocks, such as headings and paragraphs, without markup.

A link is replaced by its text, code is kept as text, and a table row is a line. Front matter, comments, and images are
removed.
"""

import re
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# YAML or TOML before a page; a horizontal rule that begins a text has a blank line after it
FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(?=[ \t]*\S)(?:.*\n)*?\1[ \t]*(?:\n|\Z)")
CELL_SEPARATOR = " | "
HEADING = re.compile("h[1-6]")
LINE_TAGS = ("br", "li", "td", "th")
HIDDEN_TAGS = ("script", "style", "title")
INLINE_TAGS = tuple("a abbr b cite code del em font i img ins kbd mark q s small span strong sub sup u var".split())


class Block(NamedTuple):
    """A paragraph, a heading, a list, a table, or a code block. It contains no blank line."""

    text: str
    level: int  # 1 to 6 for a heading that divides the text, 0 otherwise


def plain_text(text: str) -> str:
    """Return the visible text of a Markdown string, with blank lines between its blocks."""
    return "\n\n".join(block.text for block in blocks(text))


def blocks(text: str) -> list[Block]:
    """Return the nonempty blocks of a Markdown string, in order. The syntax is CommonMark with GitHub's tables.

    A heading inside a list or a quotation is normal text and does not divide the document.
    """
    page, cells = _Page(), list[str]()
    for token in _parser().parse(FRONT_MATTER.sub("", text.replace("\r\n", "\n"), count=1)):
        if token.type == "inline":
            page.write(_inline_text(token))
        elif token.type in ("fence", "code_block"):
            page.begin()
            page.write(token.content)
        elif token.type == "html_block":
            _Html(page).read(token.content)
        elif token.type in ("th_close", "td_close"):
            cells.append(page.taken())
        elif token.type == "tr_close":
            page.write(CELL_SEPARATOR.join(cells) + "\n" if any(cells) else "")
            cells.clear()
        elif token.hidden:  # wraps the text of an item in a list without blank lines
            page.write("\n")
        elif token.type == "heading_open" and not token.level:
            page.begin(int(token.tag[1]))
        elif token.type.startswith(("heading", "paragraph")) or not token.level:
            page.begin()
    return page.blocks()


class _Page:
    """Collector that groups the texts of a Markdown document into blocks."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, list[str]]] = [(0, [])]

    def begin(self, level: int = 0) -> None:
        self._blocks.append((level, []))

    def write(self, text: str) -> None:
        self._blocks[-1][1].append(text)

    def taken(self) -> str:
        """Remove and return the text that was collected last."""
        pieces = self._blocks[-1][1]
        return pieces.pop() if pieces else ""

    def blocks(self) -> list[Block]:
        found = ((level, "".join(pieces).split("\n")) for level, pieces in self._blocks)
        joined = (Block("\n".join(line.rstrip() for line in lines if line.strip()), level) for level, lines in found)
        return [block for block in joined if block.text]


def _inline_text(line: "Token") -> str:
    found = list[str]()
    for token in line.children or ():
        if token.type in ("text", "code_inline"):
            found.append(token.content)
        elif token.type == "softbreak":
            found.append(" ")
        elif token.type == "hardbreak" or (token.type == "html_inline" and token.content.startswith("<br")):
            found.append("\n")
    return _collapse_blanks("".join(found))


def _collapse_blanks(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


class _Html(HTMLParser):
    """Parser of HTML inside a Markdown string, such as a centered ``<h1>``."""

    def __init__(self, page: _Page) -> None:
        super().__init__()
        self.page, self.texts, self.unseen = page, list[str](), 0

    def read(self, html: str) -> None:
        self.page.begin()
        self.feed(html)
        self.close()
        self._begin()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.unseen += tag in HIDDEN_TAGS
        if tag in LINE_TAGS:
            self.texts.append("\n")
        elif tag not in INLINE_TAGS:
            self._begin(int(tag[1]) if HEADING.fullmatch(tag) else 0)

    def handle_endtag(self, tag: str) -> None:
        self.unseen -= tag in HIDDEN_TAGS
        if tag == "p" or HEADING.fullmatch(tag):
            self._begin()

    def handle_data(self, data: str) -> None:
        self.texts.append("" if self.unseen else data)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Parse ``<![`` with any keyword as a comment, as browsers do. The base class asserts that the keyword is
        known.
        """
        return self.parse_bogus_comment(i, report)

    def _begin(self, level: int = 0) -> None:
        self.page.write(_collapse_blanks("".join(self.texts)))
        self.page.begin(level)
        self.texts.clear()


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])
