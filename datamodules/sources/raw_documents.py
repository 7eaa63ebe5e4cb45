"""Documents before tokenization, their sections, and the base class of their sources.

`token_store.build_or_open` reads a source once. Later starts only request its fingerprint.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from contrastive_encoders.core import RetrievalData
from contrastive_encoders.io.markdown import blocks


class DocumentSection(NamedTuple):
    """Passage of a document, with the headings above it."""

    headings: tuple[str, ...]  # outermost first; empty in plain text and before the first heading
    passage: str  # paragraphs separated by blank lines; there are no blank lines inside a paragraph


class RawDocument(NamedTuple):
    """Text of a document, with its file and line for error messages."""

    text: str
    where: str  # "file:line"
    title: str = ""  # if the row has one
    markdown: str = ""  # Markdown source of the text

    def sections(self) -> list[DocumentSection]:
        """Return the sections of the document, each with the headings above it. A title is the outermost heading."""
        found = sections(self.markdown) if self.markdown else [DocumentSection((), self.text)]
        return [one._replace(headings=(self.title, *one.headings)) for one in found] if self.title else found


class DocumentSource(ABC):
    """Base class of document sources for the token store."""

    @abstractmethod
    def documents(self) -> Iterator[RawDocument]:
        """Yield the documents in a fixed order. Blank documents are dropped and counted."""

    def texts(self) -> Iterator[str]:
        """Yield the texts of the documents, for example to train a tokenizer on them."""
        return (document.text for document in self.documents())

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return values that identify the content of the source, without reading it: paths, sizes, and times. Contains
        JSON types only.
        """

    @abstractmethod
    def manifest(self) -> dict[str, Any]:
        """Return the provenance of the documents, with SHA-256 checksums, and the counts of the last reading.

        May read the files: call it once, after `documents`.
        """

    def held_out(self) -> list[RetrievalData]:
        """Return retrieval tasks whose documents are held out: `documents` never yields them."""
        return []


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
