"""Read input texts as a stream: the lines of a file, a column of a table, or both sentence columns of STS-B.

The texts are read once to count and check them, and once by each process that writes texts for them. Memory does not
depend on the number of texts. Texts are unchanged; blank texts are dropped and counted. As published, there is no
deduplication.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contrastive_encoders.core import InputError
from contrastive_encoders.io.file_discovery import check_output_apart, list_files
from contrastive_encoders.io.file_formats import form_of
from contrastive_encoders.io.manifest import sha256_of, sha256_of_all
from contrastive_encoders.io.rows import read_rows, text_in
from contrastive_encoders.io.text_files import (
    AUTO,
    EMPTY,
    LINE,
    BadRow,
    Encoding,
    ParsedRow,
    bad_row_error,
    require_valid_row,
)

FORMS = {  # for each input_type
    "text": (".txt",),
    "jsonl": (".jsonl", ".json"),
    "parquet": (".parquet",),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "stsb": (".tsv", ".csv"),
}
STSB_NAMES = ("sentence1", "sentence2")


class Summary(NamedTuple):
    """Number of texts in the input files, and the checksum of the files."""

    texts: int
    blank: int  # dropped
    sha256: str  # of the file, or of the checksums of several files


@dataclass(frozen=True)
class Inputs:
    """Iterable over the nonblank texts of all input files."""

    files: tuple["InputFile", ...]

    def __iter__(self) -> Iterator[str]:
        return (text for text in self.all_texts() if text.strip())

    def all_texts(self) -> Iterator[str]:
        """Yield all texts, including blank ones.

        Raises:
            InputError: A row cannot be read, or contains no text.
        """
        for file in self.files:
            yield from file.all_texts()

    def summary(self) -> Summary:
        """Read all texts, and return their number and the checksum of the files.

        Raises:
            InputError: A row cannot be read or has no text, or the files contain no text.
        """
        texts = blank = 0
        for text in self.all_texts():
            texts, blank = (texts + 1, blank) if text.strip() else (texts, blank + 1)
        if not texts:
            raise InputError(
                key="input", value=f"{blank} blank lines", expected="at least one text", location=self.name
            )
        return Summary(texts, blank, self.sha256())

    @property
    def name(self) -> str:
        """Return a name of the input files for messages."""
        first, others = self.files[0].path, len(self.files) - 1
        return f"{first} and {others} more" if others else str(first)

    @property
    def kind(self) -> str:
        return "+".join(dict.fromkeys(file.kind for file in self.files))

    @property
    def column(self) -> str:
        return self.files[0].column

    def sha256(self) -> str:
        """Return the SHA-256 of the file's bytes or, if there are several files, the SHA-256 of their checksums."""
        return sha256_of_all([sha256_of(file.path) for file in self.files])


@dataclass(frozen=True)
class InputFile:
    """An input file, with its type and the column of its texts."""

    path: Path
    kind: str  # a key of FORMS
    column: str
    encoding: Encoding = AUTO

    def all_texts(self) -> Iterator[str]:
        """Yield all texts of the file, including blank ones."""
        columns = {"stsb": STSB_NAMES, "text": (LINE,)}.get(self.kind, (self.column,))
        form = form_of(self.path) if form_of(self.path) in FORMS[self.kind] else FORMS[self.kind][0]
        for found in read_rows(self.path, columns, form, self.encoding):
            row = require_valid_row(found, self.path)
            if row.values:
                for name in columns:
                    yield self._text(row, name)
            elif self.kind != "stsb":
                yield ""

    def is_stsb(self) -> bool:
        """Return whether the first row contains the columns of an STS-B table, and not the requested column."""
        rows = read_rows(self.path, encoding=self.encoding)
        first = next((row for row in rows if isinstance(row, ParsedRow) and row.values), None)
        return first is not None and set(STSB_NAMES) <= first.values.keys() and self.column not in first.values

    def _text(self, row: ParsedRow, name: str) -> str:
        if self.kind == "parquet" and row.values.get(name, "") is None:
            return ""
        text = text_in(row, name)
        if isinstance(text, BadRow):
            raise bad_row_error(text, self.path, self._advice())
        return text

    def _advice(self) -> str:
        if self.kind == "stsb":
            return "Tables of STS-B have sentences in columns 6 and 7, or name them. Choose another input_type."
        return "Set input_column to the name of the column of the texts."


def open_inputs(
    path: str | Sequence[str],
    kind: str = "auto",
    column: str = "text_a",
    *,
    output: Path | None = None,
    encoding: Encoding = AUTO,
) -> Inputs:
    """Find the input files in paths, directories, or patterns (see `list_files`), and determine their types.

    ``kind="auto"`` uses the file name, recognizes STS-B's tables by their content, and reads files with other names as
    lines of text. With another ``kind``, only files of this type in a directory are used. Files in ``output`` must not
    be used as input.

    Raises:
        InputError: A file does not exist or is empty, or ``output`` is in a directory of ``path``.
    """
    given = [path] if isinstance(path, str) else list(path)
    if output is not None:
        check_output_apart(given, output)
    found = list_files(given, "input", any_name=True)
    if kind != "auto":
        found = [file for file in found if not file.in_folder or form_of(file.path) in FORMS[kind]]
    if not found:
        raise InputError(
            key="input",
            value=path,
            expected=f"at least one file of the type {kind}",
            hint="Use other files, or choose another input_type.",
        )
    for file in found:
        if file.path.stat().st_size == 0:
            raise bad_row_error(BadRow(EMPTY, 1, "empty"), file.path)
    return Inputs(tuple(_input_file(file.path, kind, column, encoding) for file in found))


def _input_file(path: Path, kind: str, column: str, encoding: Encoding) -> InputFile:
    form = form_of(path) or ".txt"
    by_name = next(name for name, forms in FORMS.items() if form in forms)
    if kind != "auto":
        return InputFile(path, kind, column, encoding)
    file = InputFile(path, by_name, column, encoding)
    return InputFile(path, "stsb", column, encoding) if by_name in ("csv", "tsv") and file.is_stsb() else file


@dataclass(frozen=True)
class SampledTexts:
    """Iterable over the input texts with the indices ``places``, in order."""

    texts: Iterable[str]
    places: frozenset[int]

    def __iter__(self) -> Iterator[str]:
        yield from (text for place, text in enumerate(self.texts) if place in self.places)


def sample(texts: Iterable[str], number: int, wanted: int, seed: int) -> SampledTexts:
    """Sample ``wanted`` of the ``number`` texts at random, or all if there are fewer.

    Raises:
        InputError: ``wanted`` is less than one.
    """
    if wanted < 1:
        raise InputError(key="input_sample", value=wanted, expected="1 or more, or null for all texts")
    wanted = min(wanted, number)
    places = np.random.default_rng(seed).choice(number, wanted, replace=False)
    return SampledTexts(texts, frozenset(places.tolist()))
