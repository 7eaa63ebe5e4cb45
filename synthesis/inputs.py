"""The given texts: lines of text, a field of JSON lines, or both sentences of STS-B's table, gzipped or not.

Read as a stream, once to count and check and once by each process that writes for them: any number in constant memory.
Texts stay as they are; blank ones are left out and counted. Nothing is de-duplicated, as published.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

from contracts import InputError

KINDS = ("text", "jsonl", "stsb")
STSB_COLUMNS = (5, 6)  # counted from 0, where the table has no header
STSB_NAMES = ("sentence1", "sentence2")
LONGEST_QUOTE = 60
SURROGATE = re.compile("[\ud800-\udfff]")


class Summary(NamedTuple):
    """What a file holds."""

    texts: int
    blank: int  # left out
    sha256: str  # of the file


@dataclass(frozen=True)
class Inputs:
    """A file of first sentences."""

    path: Path
    kind: str  # one of KINDS
    column: str = "text_a"  # of JSON lines

    def __iter__(self) -> Iterator[str]:
        for text in self.all_texts():
            if text.strip():
                yield text

    def all_texts(self) -> Iterator[str]:
        """Blank ones too.

        Raises:
            InputError: a line is not UTF-8, or not what this kind of file holds.
        """
        if self.kind == "stsb":
            yield from self._pairs()
        else:
            read: Callable[[int, str], str] = self._json if self.kind == "jsonl" else lambda _, line: line
            for number, line in self._lines():
                if self.kind == "jsonl" and not line.strip():
                    yield ""
                else:
                    yield read(number, line)

    def summary(self) -> Summary:
        """Read all of it.

        Raises:
            InputError: as above, or there is no text in it.
        """
        texts = blank = 0
        for text in self.all_texts():
            texts, blank = (texts + 1, blank) if text.strip() else (texts, blank + 1)
        if not texts:
            raise InputError(f"input={self.path}: wanted sentences, got {blank} blank lines. Give at least one text.")
        return Summary(texts, blank, file_sha256(self.path))

    def _lines(self) -> Iterator[tuple[int, str]]:
        with self._open() as file:  # only \n ends a line: other separators may stand in a sentence
            for number, data in enumerate(self._whole(file), start=1):
                try:
                    line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"input={self.path}, line {number}: wanted UTF-8, got {data[error.start : error.end]!r}. "
                        "Convert the file, for instance with iconv."
                    ) from None
                yield number, line.removesuffix("\n").removesuffix("\r")

    def _open(self) -> IO[bytes]:
        return cast(IO[bytes], gzip.open(self.path, "rb")) if self.path.suffix == ".gz" else self.path.open("rb")

    def _whole(self, file: IO[bytes]) -> Iterator[bytes]:
        try:
            yield from file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"input={self.path}: wanted a whole gzip file, got: {error}. Fetch it again.") from None

    def _json(self, number: int, line: str) -> str:
        where = f"input={self.path}, line {number}"
        try:
            found = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(
                f"{where}: wanted a JSON object, got {line[:LONGEST_QUOTE]!r} ({error}). Correct the line, or say "
                "input_type=text where these are sentences."
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get(self.column), str):
            got = sorted(found) if isinstance(found, dict) else type(found).__name__
            raise InputError(
                f"{where}: wanted an object whose {self.column!r} is a text, got {got}. Name the field: "
                "input_column=..."
            )
        text = str(found[self.column])
        if not text.isascii() and SURROGATE.search(text):
            raise InputError(
                f"{where}: {self.column!r} holds half of a character (such as \\ud800), which no UTF-8 text can. "
                "Correct the line."
            )
        return text

    def _pairs(self) -> Iterator[str]:
        columns = STSB_COLUMNS
        for number, line in self._lines():
            cells = line.split("\t")  # quotation marks are text
            if number == 1 and set(STSB_NAMES) <= set(cells):
                columns = (cells.index(STSB_NAMES[0]), cells.index(STSB_NAMES[1]))
                continue
            if not line.strip():
                continue
            if len(cells) <= max(columns):
                raise InputError(
                    f"input={self.path}, line {number}: wanted STS-B's table, with the sentences in the columns "
                    f"{columns[0] + 1} and {columns[1] + 1}, got {len(cells)} columns. Correct the line, or say "
                    "input_type=text or jsonl."
                )
            yield cells[columns[0]]
            yield cells[columns[1]]


def open_inputs(path: str, kind: str = "auto", column: str = "text_a") -> Inputs:
    """``kind="auto"`` goes by the name: .jsonl, .json; .tsv, .csv (names of STS-B's files); else lines of text.

    A name that ends in .gz is of a gzip file.

    Raises:
        InputError: there is no such file, or it is empty.
    """
    file = Path(path)
    if file.is_dir():
        raise InputError(f"input={path}: wanted a file, got a folder. Name the file of first sentences in it.")
    if not file.is_file():
        raise InputError(f"input={path}: there is no such file. Name one of first sentences: text, .jsonl or .tsv.")
    if file.stat().st_size == 0:
        raise InputError(f"input={path}: the file is empty. Give at least one sentence.")
    by_name = {".jsonl": "jsonl", ".json": "jsonl", ".tsv": "stsb", ".csv": "stsb"}
    suffix = Path(file.name.removesuffix(".gz")).suffix
    return Inputs(file, by_name.get(suffix, "text") if kind == "auto" else kind, column)


def file_sha256(path: Path) -> str:
    """Of its bytes as they lie on the disk."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
