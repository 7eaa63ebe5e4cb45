"""Where raw documents come from: text files here and on the hub; `pydocs.py` has the third source.

A source is read by `token_store.build_or_open` once; later starts ask it only for its fingerprint.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from contracts import InputError, RetrievalTask
from datamodules.sections import Section, sections
from files.documents import SOURCE
from files.listing import DOCUMENTS, count_kinds, form_of, list_files, passed_over
from files.manifest import describe_files
from files.rows import BadRow, Row, read_rows, text_in

MOST_LISTED = 20  # skipped rows whose place is listed; all are counted


class Document(NamedTuple):
    """One raw document and where it stands, to name it in a message."""

    text: str
    where: str  # "file:line"
    title: str = ""  # where a row has one
    markdown: str = ""  # of which the text is what a reader sees

    def sections(self) -> list[Section]:
        """Its texts, each with the headings above it; a title is the outermost."""
        found = sections(self.markdown) if self.markdown else [Section((), self.text)]
        return [one._replace(headings=(self.title, *one.headings)) for one in found] if self.title else found


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
    """Passes on the rows of a reading that may be examples, and keeps count of the others."""

    def __init__(self, split: str | None, on_error: Literal["fail", "skip"]) -> None:
        if on_error not in ("fail", "skip"):
            raise InputError(f"data.on_error: wanted fail or skip, got {on_error!r}")
        self.split = split  # None: all of them
        self.on_error = on_error
        self.kept = 0
        self.left_out: dict[str, int] = {}
        self.other_splits: dict[str, int] = {}
        self.skipped = 0
        self.skipped_where: list[str] = []

    def anew(self) -> "Tally":
        """Return one that has counted nothing yet."""
        return Tally(self.split, self.on_error)

    def rows(self, rows: Iterable[Row | BadRow], name: str) -> Iterator[Row]:
        """Yield the rows of this split that can be read; InputError at one that cannot, unless it may be skipped."""
        for row in rows:
            if isinstance(row, BadRow):
                self.refuse(f"{name}:{row.line}", row.message)
            elif not row.values:
                self.leave_out("blank")
            elif self.split is None or (split := row.values.get("split")) is None or split == self.split:
                yield row
            else:
                self.other_splits[str(split)] = self.other_splits.get(str(split), 0) + 1

    def documents(
        self, rows: Iterable[Row | BadRow], name: str, column: str = "text", *, markdown: bool = False
    ) -> Iterator[Document]:
        """Yield the texts of these rows that are not blank, with the ``markdown`` that they were made of."""
        for row in self.rows(rows, name):
            text, where = text_in(row, column), f"{name}:{row.line}"
            if isinstance(text, BadRow):
                self.refuse(where, text.message)
            elif not text.strip():
                self.leave_out("blank")
            else:
                self.kept += 1
                title = row.values.get("title")
                title = title.strip() if isinstance(title, str) else ""
                yield Document(text, where, title, row.values[SOURCE] if markdown else "")

    def leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def refuse(self, where: str, message: str) -> None:
        """InputError, or one more that is skipped."""
        if self.on_error == "fail":
            raise InputError(f"{where}: {message}. Or go on without such rows: data.on_error=skip.")
        self.skipped += 1
        if len(self.skipped_where) < MOST_LISTED:
            self.skipped_where.append(f"{where}: {message}")

    def refuse_nothing(self, name: str, wanted: str) -> None:
        """InputError if all rows have been read and none was kept."""
        if self.kept:
            return
        got = [f"{number} {reason}" for reason, number in self.left_out.items()]
        got += [f"{self.skipped} unreadable ({'; '.join(self.skipped_where[:2])})"] if self.skipped else []
        got += [f"{number} with split={split!r}" for split, number in self.other_splits.items()]
        raise InputError(f"{name}: no {wanted}; got {', '.join(got) or 'nothing'}.")

    def counts(self) -> dict[str, Any]:
        return {"other_splits": self.other_splits, "skipped": self.skipped, "skipped_where": self.skipped_where}


class TextSource:
    """Documents in files of every kind, under the name "text", in folders of them, or in several of either.

    A .txt file is a document per line, in a folder a document per file; ``document`` overrides both. Markdown, HTML,
    PDF, Word and Excel are a document per file. Rows with a
    "split" column are taken where it says ``split``.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        *,
        document: Literal["line", "file"] | None,
        on_error: Literal["fail", "skip"],
        split: str,
    ) -> None:
        if document not in (None, "line", "file"):
            raise InputError(f"data.document: wanted line or file, got {document!r}")
        self.files = list_files(path, documents="all")
        self.passed_over = passed_over(path, self.files)
        self.document = document
        self.tally = Tally(split, on_error)

    def documents(self) -> Iterator[Document]:
        self.tally = self.tally.anew()
        for file in self.files:
            rows = read_rows(file.path, ("text", "split", "title"))
            whole = self.document == "file" or (self.document is None and file.in_folder)
            if whole and form_of(file.path) == ".txt":
                rows = _as_one(rows)
            markdown = form_of(file.path, DOCUMENTS) != ""
            yield from self.tally.documents(rows, str(file.path), markdown=markdown)
        self.tally.refuse_nothing(names_of([file.path for file in self.files]), "document in it. Wanted text")

    def texts(self) -> Iterator[str]:
        return (document.text for document in self.documents())

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "text",
            "files": [[*identity_of(file.path), file.in_folder] for file in self.files],
            "document": self.document,
            "split": self.tally.split,
            "on_error": self.tally.on_error,
        }

    def manifest(self) -> dict[str, Any]:
        return {
            "kind": "text",
            **describe_files([file.path for file in self.files]),
            "kinds": count_kinds([file.path for file in self.files]),
            "passed_over": self.passed_over,
            "document": self.document,
            "split": self.tally.split,
            "blank": self.tally.left_out.get("blank", 0),
            **self.tally.counts(),
        }

    def held_out(self) -> list[RetrievalTask]:
        return []


def _as_one(lines: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    texts: list[str] = []
    for line in lines:
        if isinstance(line, BadRow):
            yield line  # the file is one document: half of it is not
            return
        texts.append(line.values["text"])
    yield Row({"text": "\n".join(texts)}, 1)


def identity_of(path: Path) -> list[str | int]:
    """The change time besides: rsync and tar set the modification time back, to what an older content may have had."""
    path, stat = path.resolve(), path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def names_of(files: Sequence[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more file(s)"


class HubSource:
    """A data set of the Hugging Face hub, or a local folder in the same layout.

    ``streaming`` reads the remote files as they come and keeps no second copy of them on the disk. Name a
    ``revision``: without it the fingerprint cannot see that the data set has moved on.
    """

    def __init__(
        self,
        id: str,
        *,
        split: str,
        revision: str | None,
        data_files: str | Sequence[str] | None,
        text_column: str,
        name: str | None,
        streaming: bool,
        on_error: Literal["fail", "skip"],
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
        self.tally = self.tally.anew()
        name = f"{self.asked['id']}[{self.asked['split']}]"
        yield from self.tally.documents(self._rows(), name, self.text_column)
        self.tally.refuse_nothing(name, "document in it. Wanted text")

    def _rows(self) -> Iterator[Row]:
        dataset = self._load()
        columns = dataset.column_names
        if columns is not None and self.text_column not in columns:
            raise InputError(
                f"{self.asked['id']}: no column {self.text_column!r}; the columns are {', '.join(map(repr, columns))}. "
                "Pass data.text_column=NAME."
            )
        only_text = dataset.select_columns([self.text_column])
        for line, record in enumerate(only_text, start=1):
            yield Row(dict(record), line)

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
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()] if folder.is_dir() else []
        return {
            "kind": "hub",
            **self.asked,
            "text_column": self.text_column,
            "files": [identity_of(path) for path in files],
        }

    def manifest(self) -> dict[str, Any]:
        """The hub has no cheap sha256 of a data set; the token store adds that of the texts it read."""
        blank = self.tally.left_out.get("blank", 0)
        return {"kind": "hub", **self.asked, "text_column": self.text_column, "blank": blank, **self.tally.counts()}

    def texts(self) -> Iterator[str]:
        return (document.text for document in self.documents())

    def held_out(self) -> list[RetrievalTask]:
        return []
