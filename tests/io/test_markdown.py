"""Plain text of Markdown, compared with the text that Beautiful Soup finds in markdown-it's HTML."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup, Comment
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from contrastive_encoders.io.markdown import blocks, plain_text

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]) if path.stat().st_size > 2_000]
PARTS = [
    *("# A", "## B\n", "- x\n- y\n\n  z\n", "1. [a](b) `c`", "> # q\n", "<b>", "<div>\n<![x", "</p>", "| a | b |"),
    *("```\n# no\n\n\n```", "| a | b |\n|--|--|\n| c | |\n", "<!-- ", "-->", "---\n", "&amp;", "![p](q)", "t\n===\n"),
    *("\n\n", "\\\n", "ü\u2028"),
]


def page_of(text: str) -> BeautifulSoup:
    return BeautifulSoup(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text), "html.parser")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_words_of_a_page_equal_those_of_its_html_in_order(path):
    text = path.read_text(encoding="utf-8")
    page = page_of(text)
    for comment in page.find_all(string=lambda found: isinstance(found, Comment)):
        comment.extract()
    for cell in page.find_all(["td", "th"]):
        cell.append(" ")
    for line in page.find_all("br"):
        line.replace_with("\n")
    seen = page.get_text()
    assert [word for word in plain_text(text).split() if word != "|"] == [word for word in seen.split() if word != "|"]
    assert len(seen.split()) > 50


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_headings_of_a_page_equal_those_of_its_html(path):
    text = path.read_text(encoding="utf-8")
    expected = [(int(tag.name[1]), " ".join(tag.get_text().split())) for tag in page_of(text).find_all(is_heading)]
    assert [(block.level, block.text) for block in blocks(text) if block.level] == expected
    assert expected


def is_heading(tag) -> bool:
    return tag.name in {"h1", "h2", "h3", "h4", "h5", "h6"}


@pytest.mark.parametrize(
    ("text", "headings"),
    [  # from the CommonMark specification, sections 4.2, 4.3 and 4.5
        ("#5 bolt\n\n#hashtag", []),
        (r"\## foo", []),
        ("# foo *bar* \\*baz\\*", [(1, "foo bar *baz*")]),
        ("### foo ###     ", [(3, "foo")]),
        ("Foo *bar\nbaz*\n====", [(1, "Foo bar baz")]),
        ("Foo\nbar\n---", [(2, "Foo bar")]),
        ("####### foo", []),
        ("~~~\n# foo\n~~~", []),
        ("    # foo", []),
        ("> # Foo\n> bar", []),  # a heading of the quotation
        ("<h2 align='center'>\n  a <b>b</b>\n</h2>", [(2, "a b")]),
    ],
)
def test_headings_follow_commonmark(text, headings):
    assert [(block.level, block.text) for block in blocks(text) if block.level] == headings


def test_front_matter_comments_and_pictures_are_removed():
    text = "---\ntitle: T\ntags: [a]\n---\n# Head\n<!-- no\n\nno -->\nSee <!-- no -->[![badge](b.svg)](u) it\n"
    assert plain_text(text) == "Head\n\nSee it"
    assert plain_text("+++\ntitle = 'T'\n+++\ntext") == "text"
    assert plain_text("---\n\ntext between rules\n\n---\nmore") == "text between rules\n\nmore"


def test_code_is_kept_as_text_with_its_lines():
    assert plain_text("Run:\n\n```py\ndef f():\n    return '*x*'\n\n\nf()\n```\n") == (
        "Run:\n\ndef f():\n    return '*x*'\nf()"
    )


def test_a_list_is_a_block_and_a_table_row_is_a_line():
    text = "- a [b](c)\n- d\n  - e\n\n| x | y |\n|---|---|\n| 1 |   |\n|   |   |\n"
    assert [block.text for block in blocks(text)] == ["a b\nd\ne", "x | y\n1 |"]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=12), st.sampled_from(["", "\n"]))
def test_blocks_contain_no_blank_lines(parts, separator):
    for block in blocks(separator.join(parts)):
        assert block.text.strip()
        assert all(line.strip() for line in block.text.split("\n"))
        assert 0 <= block.level <= 6
