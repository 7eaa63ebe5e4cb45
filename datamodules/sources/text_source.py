"""Source of documents in files, folders, and datasets of the hub."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.hub_datasets import (
    DEFAULT_HUB_KEYS,
    HubKeys,
    HubSet,
    describe_sources,
    file_identity,
    find_rows,
    names_of,
    rows_in,
)
from contrastive_encoders.datamodules.sources.raw_documents import DocumentSource, RawDocument
from contrastive_encoders.datamodules.sources.row_filter import (
    MAX_LISTED,
    RowFilter,
    changed_options,
    round_up,
)
from contrastive_encoders.datamodules.sources.row_reading import MAX_SKIPPED, OnError
from contrastive_encoders.io.file_discovery import count_skipped
from contrastive_encoders.io.file_formats import DOCUMENTS, count_kinds, form_of
from contrastive_encoders.io.rows import DOCUMENT
from contrastive_encoders.io.text_files import LINE, BadRow, Encoding, ParsedRow


class TextSource(DocumentSource):
    """Source of documents in files of any supported format, in folders, in datasets of the hub, or in several of these.

    ``column`` names the texts. A .txt file has a document per line; in a folder, each .txt file is a document.
    ``document`` overrides both. Markdown, HTML, PDF, Word, and Excel files are a document each. Of rows with a "split"
    column, those of ``split`` are used.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        *,
        document: Literal["line", "file"] | None,
        on_error: OnError,
        split: str,
        column: str = "text",
        hub: HubKeys = DEFAULT_HUB_KEYS,
        max_skipped: float = MAX_SKIPPED,
        encoding: str | None = None,
        strip_html: bool = False,
        prefix: str = "data.",
    ) -> None:
        self.row_filter = RowFilter(split, on_error, max_skipped, prefix, strip_html)
        self.files = find_rows(path, split, hub, documents="all", key=self.row_filter.path_key)
        self.passed_over = count_skipped(path, [file.path for file in self.files if not isinstance(file, HubSet)])
        self.document, self.column = document, column
        self.unreadable = dict[Path, BadRow]()  # files that are one document each, in the last reading
        self.encoding = Encoding(encoding, f"{prefix}encoding")

    def documents(self) -> Iterator[RawDocument]:
        self.row_filter, self.unreadable = self.row_filter.empty_copy(), {}
        for file in self.files:
            if isinstance(file, HubSet):
                yield from self.row_filter.documents(file.rows([self.column, "title"]), str(file), self.column)
                continue
            lines, is_one = form_of(file.path) == ".txt", form_of(file.path, DOCUMENTS) != ""
            form = DOCUMENT if is_one else ""
            rows = rows_in(file.path, (self.column, "split", "title"), self.encoding, form)
            if lines and (self.document == "file" or (self.document is None and file.in_folder)):
                rows, is_single_document = _join_lines(rows), True
            else:
                is_single_document = is_one
            if is_single_document and isinstance(row := next(iter(rows)), BadRow):
                self.unreadable[file.path] = row
                if self.row_filter.on_error == "skip" or len(self.files) == 1:
                    self.row_filter.refuse(row._replace(ends_file=len(self.files) == 1), str(file.path))
                continue
            rows = iter([row]) if is_single_document else rows
            column = LINE if lines or is_one else self.column
            yield from self.row_filter.documents(rows, str(file.path), column, markdown=is_one)
        if self.unreadable and self.row_filter.on_error == "fail":
            raise self._unreadable_files()
        self.row_filter.check(names_of(self.places()), "a document with text")

    def _unreadable_files(self) -> InputError:
        """Return the error that names all unreadable files."""
        bad = sum(row.fault != "empty" for row in self.unreadable.values())
        share = bad / (self.row_filter.kept + len(self.unreadable))
        skip = f"{self.row_filter.prefix}on_error=skip"
        if share > self.row_filter.max_skipped:
            skip += f" {self.row_filter.prefix}max_skipped={round_up(share):g}"
        listed = [f"{path}: {row.message}." for path, row in islice(self.unreadable.items(), MAX_LISTED)]
        more = len(self.unreadable) - len(listed)
        listed += [f"{more} more."] if more else []
        return InputError(
            location=names_of(list(self.unreadable)),
            expected="readable files",
            value=f"{len(self.unreadable)} unreadable",
            hint="\n".join([f"To leave them out, set {skip}.", *listed]),
        )

    def places(self) -> list[Path | HubSet]:
        return [file if isinstance(file, HubSet) else file.path for file in self.files]

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "text",
            "files": [
                file_identity(file) if isinstance(file, HubSet) else [*file_identity(file.path), file.in_folder]
                for file in self.files
            ],
            "document": self.document,
            "split": self.row_filter.split,
            "on_error": self.row_filter.on_error,
            **changed_options(self.row_filter, self.encoding),
            **({} if self.column == "text" else {"column": self.column}),
        }

    def manifest(self) -> dict[str, Any]:
        return {
            "kind": "text",
            **describe_sources(self.places()),
            "kinds": count_kinds(
                [file.path for file in self.files if not isinstance(file, HubSet) and file.path not in self.unreadable]
            ),
            "passed_over": self.passed_over,
            "document": self.document,
            "split": self.row_filter.split,
            "blank": self.row_filter.left_out.get("blank", 0),
            **self.row_filter.counts(),
        }


def _join_lines(lines: Iterable[ParsedRow | BadRow]) -> Iterator[ParsedRow | BadRow]:
    texts: list[str] = []
    for line in lines:
        if isinstance(line, BadRow):
            yield line  # the file is one document, and half of it would not be the document
            return
        texts.append(line.values["text"])
    yield ParsedRow({"text": "\n".join(texts)}, 1)
