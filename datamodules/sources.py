"""Where raw documents come from: text files here and on the hub; `pydocs.py` has the third source.

A source is read by `token_store.build_or_open` once; later starts ask it only for its fingerprint.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from contracts import InputError, RetrievalTask
from datamodules.text_files import BadRow, Row, checked_row, list_files, read_rows
from files.manifest import describe_files

MOST_LISTED = 20  # skipped rows whose place is listed; all are counted


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
        """Provenance with sha256, counts of the last reading; may read the files: call once, after `documents`."""
        ...

    def held_out(self) -> list[RetrievalTask]:
        """Tasks made of documents that `documents` never yields; mostly empty."""
        ...


class Tally:
    """Sorts rows into documents and what is no document, and keeps count of the latter."""

    def __init__(self, split: str | None, on_error: Literal["fail", "skip"]) -> None:
        if on_error not in ("fail", "skip"):
            raise InputError(f"data.on_error: wanted fail or skip, got {on_error!r}")
        self.split = split
        self.on_error = on_error
        self.documents = 0
        self.blank = 0
        self.other_splits: dict[str, int] = {}
        self.skipped = 0
        self.skipped_where: list[str] = []

    def sort(self, rows: Iterable[Row | BadRow], name: str) -> Iterator[Document]:
        """The documents among the rows of one file; a bad row is an InputError or one more skipped."""
        for row in rows:
            where = f"{name}:{row.line}"
            if isinstance(row, BadRow):
                self._bad(row, where)
            elif not row.text.strip():
                self.blank += 1
            elif self.split is not None and row.split not in (None, self.split):
                self.other_splits[row.split] = self.other_splits.get(row.split, 0) + 1
            else:
                self.documents += 1
                yield Document(row.text, where)

    def _bad(self, row: BadRow, where: str) -> None:
        if self.on_error == "fail":
            raise InputError(f"{where}: {row.message}. Or go on without such rows: data.on_error=skip.")
        self.skipped += 1
        if len(self.skipped_where) < MOST_LISTED:
            self.skipped_where.append(f"{where}: {row.message}")

    def refuse_nothing(self, name: str) -> None:
        """InputError if all rows have been read and there was no document among them."""
        if self.documents:
            return
        got = [f"{self.blank} blank", f"{self.skipped} unreadable ({'; '.join(self.skipped_where[:2])})"]
        got += [f"{count} with split={split!r}" for split, count in self.other_splits.items()]
        raise InputError(f"{name}: no document in it. Wanted text; got {', '.join(got)}.")

    def counts(self) -> dict[str, Any]:
        return {
            "blank": self.blank,
            "other_splits": self.other_splits,
            "skipped": self.skipped,
            "skipped_where": self.skipped_where,
        }


class TextSource:
    """Documents in .txt, .jsonl and .parquet files (.gz too), in folders of them, or in several of either.

    A .txt file is a document per line, in a folder a document per file; ``document`` overrides both. Rows with a
    "split" column are taken where it says ``split``.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        document: Literal["line", "file"] | None = None,
        on_error: Literal["fail", "skip"] = "fail",
        split: str = "train",
    ) -> None:
        if document not in (None, "line", "file"):
            raise InputError(f"data.document: wanted line or file, got {document!r}")
        self.files = list_files([path] if isinstance(path, str | Path) else path)
        self.document = document
        self.tally = Tally(split, on_error)

    def documents(self) -> Iterator[Document]:
        self.tally = tally = Tally(self.tally.split, self.tally.on_error)
        for file in self.files:
            whole = self.document == "file" or (self.document is None and file.in_folder)
            yield from tally.sort(read_rows(file.path, whole), str(file.path))
        tally.refuse_nothing(names_of(self.files[0].path, len(self.files)))

    def texts(self) -> Iterator[str]:
        return (document.text for document in self.documents())

    def fingerprint(self) -> dict[str, Any]:
        stats = [(file.path.resolve(), file.path.stat(), file.in_folder) for file in self.files]
        return {
            "kind": "text",
            "files": [[*identity_of(path, stat), in_folder] for path, stat, in_folder in stats],
            "document": self.document,
            "split": self.tally.split,
            "on_error": self.tally.on_error,
        }

    def manifest(self) -> dict[str, Any]:
        return {
            "kind": "text",
            **describe_files([file.path for file in self.files]),
            "document": self.document,
            "split": self.tally.split,
            **self.tally.counts(),
        }

    def held_out(self) -> list[RetrievalTask]:
        return []


def identity_of(path: Path, stat: os.stat_result) -> list[str | int]:
    """The change time besides: rsync and tar set the modification time back, to what an older content may have had."""
    return [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def names_of(first: Path, number: int) -> str:
    return str(first) if number == 1 else f"{first} and {number - 1} more file(s)"


class HubSource:
    """A data set of the Hugging Face hub, or a local folder in the same layout.

    ``streaming`` reads the remote files as they come and keeps no second copy of them on the disk. Name a
    ``revision``: without it the fingerprint cannot see that the data set has moved on.
    """

    def __init__(
        self,
        id: str,
        split: str = "train",
        revision: str | None = None,
        data_files: str | Sequence[str] | None = None,
        text_column: str = "text",
        name: str | None = None,
        streaming: bool = False,
        on_error: Literal["fail", "skip"] = "fail",
    ) -> None:
        self.asked: dict[str, Any] = {
            "id": id,
            "name": name,
            "split": split,
            "revision": revision,
            "data_files": data_files if data_files is None or isinstance(data_files, str) else list(data_files),
        }
        self.text_column = text_column
        self.streaming = streaming
        self.tally = Tally(None, on_error)

    def documents(self) -> Iterator[Document]:
        self.tally = tally = Tally(None, self.tally.on_error)
        name = f"{self.asked['id']}[{self.asked['split']}]"
        yield from tally.sort(self._rows(), name)
        tally.refuse_nothing(name)

    def _rows(self) -> Iterator[Row | BadRow]:
        dataset = self._load()
        columns = dataset.column_names
        if columns is not None and self.text_column not in columns:
            raise InputError(
                f"{self.asked['id']}: no column {self.text_column!r}; the columns are {', '.join(map(repr, columns))}. "
                "Pass data.text_column=NAME."
            )
        only_text = dataset.select_columns([self.text_column])
        for line, record in enumerate(only_text, start=1):
            yield checked_row(record[self.text_column], None, line)

    def _load(self) -> Any:
        import datasets

        arguments = dict(self.asked)
        id = arguments.pop("id")
        try:
            return datasets.load_dataset(id, streaming=self.streaming, **arguments)
        except (OSError, ValueError, RuntimeError) as error:  # the hub's own errors are OSErrors
            raise InputError(
                f"{id}: the data set could not be loaded ({type(error).__name__}: {error}). If the hub cannot be "
                "reached from here, download it elsewhere and pass the folder: data.id=FOLDER (the same layout), or "
                "data=text data.path=FILE_OR_FOLDER."
            ) from error

    def fingerprint(self) -> dict[str, Any]:
        folder = Path(self.asked["id"])
        stats = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()] if folder.is_dir() else []
        return {
            "kind": "hub",
            **self.asked,
            "text_column": self.text_column,
            "files": [identity_of(path.resolve(), stat) for path, stat in stats],
        }

    def manifest(self) -> dict[str, Any]:
        """The hub has no cheap sha256 of a data set; the token store adds that of the texts it read."""
        return {"kind": "hub", **self.asked, "text_column": self.text_column, **self.tally.counts()}

    def texts(self) -> Iterator[str]:
        return (document.text for document in self.documents())

    def held_out(self) -> list[RetrievalTask]:
        return []
