"""Passages under their headings; the truth is a handwritten outline, and the tokens of markdown-it."""

from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from contrastive_encoders.datamodules.sources.raw_documents import DocumentSection, sections

DOCS = [path for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")) if path.stat().st_size > 2_000]


def test_a_passage_stands_under_the_path_of_its_headings():
    text = """Above all.

Second paragraph.

# Guide

Welcome *here*.

More.

## Install

### With pip

    pip install it

## Use

- one
- two

# Appendix
"""
    assert sections(text) == [
        DocumentSection((), "Above all."),
        DocumentSection((), "Second paragraph."),
        DocumentSection(("Guide",), "Welcome here.\n\nMore."),
        DocumentSection(("Guide", "Install", "With pip"), "pip install it"),
        DocumentSection(("Guide", "Use"), "one\ntwo"),
    ]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_heading_with_text_below_it_has_one_passage(path):
    """In the flat list of tokens, a heading has text if the next opening token after it is not that of a heading."""
    text = path.read_text(encoding="utf-8")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    outer = [token for token in tokens if token.level == 0 and token.nesting >= 0 and token.type != "hr"]
    titled = sum(one.type == "heading_open" != two.type for one, two in pairwise(outer))
    found = sections(text)
    assert len([section for section in found if section.headings]) == titled
    assert [section for section in found if not section.headings or "\n\n\n" in section.passage] == []
