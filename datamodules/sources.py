"""Where raw documents come from: text files here and on the hub; `pydocs.py` has the third source.

A source is read by `token_store.build_or_open` once; later starts ask it only for its fingerprint.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from contracts import RetrievalTask


class Document(NamedTuple):
    """One raw document and where it stands, to name it in a message."""

    text: str
    where: str  # "file:line"


class DocumentSource(Protocol):
    """What the token store asks of a source."""

    def documents(self) -> Iterator[Document]:
        """The documents in a fixed order; blank ones are left out and counted."""
        ...

    def texts(self) -> Iterator[str]:
        """The texts alone, e.g. to train a tokenizer."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """What names the content without reading it: paths, sizes, times; JSON types only."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Provenance with sha256 and the counts of the last reading; reads the files: call it once, after `documents`."""
        ...

    def held_out(self) -> list[RetrievalTask]:
        """Tasks made of documents that `documents` never yields; mostly empty."""
        ...


class TextSource:
    """Documents in .txt, .jsonl and .parquet files (.gz too), in folders of them, or in several of either."""

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        document: Literal["line", "file"] | None = None,
        on_error: Literal["fail", "skip"] = "fail",
        split: str = "train",
    ) -> None: ...


class HubSource:
    """A data set of the Hugging Face hub, or a local folder in the same layout."""

    def __init__(
        self,
        id: str,
        split: str = "train",
        revision: str | None = None,
        data_files: str | Sequence[str] | None = None,
        text_column: str = "text",
        name: str | None = None,
    ) -> None: ...
