"""Split documents into passages with the headings above them."""

from typing import NamedTuple

from contrastive_encoders.io.markdown import blocks


class DocumentSection(NamedTuple):
    """Passage of a document, with the headings above it."""

    headings: tuple[str, ...]  # outermost first; empty in plain text and before the first heading
    passage: str  # paragraphs separated by blank lines; there are no blank lines inside a paragraph


def sections(text: str) -> list[DocumentSection]:
    """Return the passages of a Markdown text in order, each with its headings.

    The text between two headings is one passage. A heading without text below it has no passage, but is one of the
    headings of its subsections. Without a heading above it, each paragraph is a passage.
    """
    path, found = list[tuple[int, str]](), list[tuple[tuple[str, ...], list[str]]]()
    passage: list[str] | None = None  # of the last heading; None without heading or without text below it
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
