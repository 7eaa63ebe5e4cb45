"""Passages of a document with the headings above them."""

import re
from typing import NamedTuple

from contrastive_encoders.io.markdown import blocks

BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


class DocumentSection(NamedTuple):
    """A text and the titles that lead to it."""

    headings: tuple[str, ...]  # from the outermost to the one right above; none above the first, and in a plain text
    passage: str  # paragraphs with a blank line between them; none stands inside one


def sections(text: str, *, markdown: bool = True) -> list[DocumentSection]:
    """Return the passages of a Markdown text in order, each with its headings.

    What stands between a heading and the next is one passage; a heading with nothing below it has none, but leads to
    those of its subheadings. Where no heading is above it, as in a plain text (``markdown=False``, nothing in it is a
    mark), each paragraph is a passage.
    """
    if not markdown:
        paragraphs = BLANK_LINES.split(text.replace("\r\n", "\n"))
        return [DocumentSection((), paragraph.strip()) for paragraph in paragraphs if paragraph.strip()]
    path, found = list[tuple[int, str]](), list[tuple[tuple[str, ...], list[str]]]()
    passage: list[str] | None = None  # of the last heading; None where there is none above, or nothing below it yet
    for block in blocks(text):
        if block.level:
            path = [above for above in path if above[0] < block.level] + [(block.level, block.text.replace("\n", " "))]
            passage = None
        elif passage:
            passage.append(block.text)
        else:
            found.append((tuple(title for _, title in path), [block.text]))
            passage = found[-1][1] if path else None
    return [DocumentSection(headings, "\n\n".join(paragraphs)) for headings, paragraphs in found]
