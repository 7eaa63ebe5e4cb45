"""A table says the same in Markdown, on a terminal, in a page and to a program; a page shows texts and runs none."""

import html
import io
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import altair as alt
import pytest
from markdown_it import MarkdownIt
from markupsafe import Markup
from rich.console import Console

from contrastive_encoders.core import OutputError
from contrastive_encoders.reports import figure
from contrastive_encoders.reports.figure import INK, Figure, draw
from contrastive_encoders.reports.page import ReportSection, page, to_markdown
from contrastive_encoders.reports.tables import (
    CODE,
    Cell,
    Column,
    Table,
    columns,
    escape,
    fence,
    markdown,
    to_terminal_table,
)

TABLE = Table(
    [Column("name"), *columns("first", "second", number=",.1f")],
    [["a|b <i>", 1234.56, None], [Cell("sts12/all", mark=CODE), Cell("one seed", -1.0), 2]],
    "Title",
    "Note.",
    "id",
)


@pytest.mark.parametrize("text", ["plain", "```\n# a heading\n```", "a ```` b\n````\n~~~", ""])
def test_a_block_of_lines_ends_where_it_ends(text):
    [block] = MarkdownIt().parse(fence(text))
    assert (block.type, block.content) == ("fence", f"{text}\n")


def test_markdown_aligns_formats_and_escapes():
    assert markdown(TABLE).splitlines() == [
        "| name | first | second |",
        "| --- | ---: | ---: |",
        r"| a\|b \<i\> | 1,234.6 |  |",
        "| `sts12/all` | one seed | 2.0 |",
    ]
    linked = Table([Column("runs")], [[Cell("", links=(("a_b", "../a_b"),))]])
    assert markdown(linked).endswith(r"| [a\_b](../a_b) |")
    assert markdown(Table([Column("a")], [])) == "None."


@pytest.mark.parametrize(
    "text",
    [
        "# a",
        "- a",
        "--- ",
        "+ 1",
        "1. a",
        "*a* _b_ __c__",
        "`a` ``b``",
        "<b>&lt;&#60;",
        "[a](b) ![c](d) [e]",
        "a|b \\| c\\",
        "~~a~~",
        "> a",
        "$x$",
        "a\n# b",
    ],
)
def test_markdown_shows_every_letter(text):
    """The truth is markdown-it, by the rules of GitHub's tables."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    line = " ".join(text.split())
    assert parser.render(escape(text)) == f"<p>{html.escape(line, quote=False)}</p>\n"
    shown = parser.render(markdown(Table(columns("a"), [[text], [Cell(text, mark=CODE)]])))
    cells = re.findall("<td>(?:<code>)?(.*?)(?:</code>)?</td>", shown)
    assert [html.unescape(cell) for cell in cells] == [line, line]


def test_a_link_leads_to_its_file():
    name = "a b (1) #2?%20|<x>.y"
    table = Table(columns("a"), [[Cell("", links=((name, f"../{name}"),))]])
    [written] = re.findall('href="(.*?)"', MarkdownIt("commonmark").enable("table").render(markdown(table)))
    [on_page] = re.findall(
        '<td .*?href="(.*?)"|<th scope="row".*?href="(.*?)"', page("T", [ReportSection("S", [table])])
    )
    assert unquote(written) == unquote("".join(on_page)) == f"../{name}"
    assert not set(" #?|<") & set(written + "".join(on_page))


def test_a_terminal_shows_brackets_as_they_are():
    console = Console(file=io.StringIO(), width=80)
    console.print(to_terminal_table(TABLE._replace(rows=[["[red]x", 1, 2]])))
    assert "[red]x" in console.file.getvalue()


def test_a_page_escapes_texts_and_needs_nothing_beside_it():
    parts = ["<script>", TABLE, TABLE._replace(name="", folded=True), Markup("<b>bold</b>")]
    sections = [ReportSection("A & b", parts)]
    text = page("T<", sections, ["lead"], key=["</script><b>"], data={"said": "</script><b>"})
    HTMLParser().feed(text)
    assert "<h1>T&lt;</h1>" in text
    assert '<p dir="auto">&lt;script&gt;</p>' in text
    assert "<b>bold</b>" in text
    assert text.count("</script>") == 2  # from the data and the code that sorts and filters: no figure, no library
    assert "</script><b>" not in text
    assert "https:" not in text
    assert "http:" not in text
    assert text.count("<details>") == 1
    written = to_markdown("T", sections, ["lead"])
    assert "bold" not in written
    assert written.startswith("# T\n\nlead\n\n## A \\& b\n\n\\<script\\>\n\n**Title.** Note.\n\n| name |")


def test_a_figure_is_a_picture_and_a_page_of_the_same():
    """Colors of a page are the style sheet's; its library is small; the picture has the same names."""
    names = ["@ink", "var(--ink)", "<i>&", "$x$", "a\u2028b", "\x1b[31mred\x08", r"\b \u001b"]
    rows = [{"x": place, "arm": name} for place, name in enumerate(names)]
    panel = alt.Chart({"values": rows}).mark_point(color=INK).encode(x="x:Q", y=alt.Y("arm:N", sort=names))
    figure = Figure("one", "One", "A caption.", [panel, panel])
    drawn = draw([figure])["one"]
    assert drawn.png.startswith(b"\x89PNG")
    words = re.findall("<text[^>]*>(.*?)</text>", drawn.svg.decode())
    said = [re.sub("[\u2028\x1b\x08]", " ", name).strip() for name in names]
    shown = [html.unescape(word).strip() for word in words]
    assert [word for word in shown if word in said] == 2 * said  # in their order
    assert '"var(--' not in drawn.svg.decode()
    text = page("T", [ReportSection("S", [figure])], drawn={"one": drawn})
    assert "var(--ink)" in text
    assert text.count('data-figure="one"') == 2
    assert len(text.encode()) < 1.5e6
    assert "![A caption.](pictures/one.png)" in to_markdown("T", [ReportSection("S", [figure])])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_whole_group_does_not_break_a_figure(number):
    """A run that is asked to stop still writes its page."""
    command = [sys.executable, "-P", Path(figure.__file__).with_name("render.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        status, until = Path(f"/proc/{started.pid}/status"), time.monotonic() + 20
        while time.monotonic() < until:
            if int(re.search(r"SigIgn:\s*(\w+)", status.read_text())[1], 16) >> (number - 1) & 1:
                break
            time.sleep(0.01)
        started.send_signal(number)
        said, _ = started.communicate(b"[{}, []]", timeout=30)
    assert (started.returncode, said) == (0, b"[]")


def test_drawing_is_given_up_and_says_so_in_a_sentence(monkeypatch):
    panel = alt.Chart({"values": []}).mark_point()
    broken = panel.transform_filter("datum.x >")
    with pytest.raises(OutputError, match=r" 1 \(\w.*\)$"):
        draw([Figure("one", "One", "", [broken])])
    monkeypatch.setattr(figure, "SECONDS", 0.01)
    monkeypatch.setattr(figure, "SECONDS_EACH", 0)
    with pytest.raises(OutputError, match=r" 0\.01 "):
        draw([Figure("one", "One", "", [panel])])
