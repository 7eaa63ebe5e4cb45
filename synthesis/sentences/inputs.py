"""The given texts: lines of text, a field of JSON lines or of Parquet, or both sentences of STS-B's table. They come in
one file or many, gzipped or not.

Read as a stream, once to count and check and once by each process that writes for them: any number in constant memory.
Texts stay as they are; blank ones are left out and counted. Nothing is de-duplicated, as published.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

from contracts import InputError
from files.manifest import sha256_of, sha256_of_all

KINDS = ("text", "jsonl", "stsb", "parquet")
SUFFIXES = {".txt": "text", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".tsv": "stsb", ".csv": "stsb"}
ALONE = (".tsv", ".csv")  # of a folder with others, these are not taken for STS-B's table
OF_OTHERS = ("manifest.json", "dataset_info.json", "dataset_infos.json", "state.json")  # say something about a folder
STSB_COLUMNS = (5, 6)  # counted from 0, where the table has no header
STSB_NAMES = ("sentence1", "sentence2")
LONGEST_QUOTE = 60
ROWS_OF_PARQUET = 256  # in memory at a time
SURROGATE = re.compile("[\ud800-\udfff]")


class Summary(NamedTuple):
    """What a file holds."""

    texts: int
    blank: int  # left out
    sha256: str  # of the file, or of the sums of several


@dataclass(frozen=True)
class Inputs:
    """Files of first sentences, one after the other."""

    files: tuple["InputFile", ...]

    def __iter__(self) -> Iterator[str]:
        for text in self.all_texts():
            if text.strip():
                yield text

    def all_texts(self) -> Iterator[str]:
        """Blank ones too.

        Raises:
            InputError: a line is not UTF-8, or not what this kind of file holds.
        """
        for file in self.files:
            yield from file.all_texts()

    def summary(self) -> Summary:
        """Read all of it.

        Raises:
            InputError: as above, or there is no text in it.
        """
        texts = blank = 0
        for text in self.all_texts():
            texts, blank = (texts + 1, blank) if text.strip() else (texts, blank + 1)
        if not texts:
            raise InputError(f"input={self.name}: wanted sentences, got {blank} blank lines. Give at least one text.")
        return Summary(texts, blank, self.sha256())

    @property
    def name(self) -> str:
        """In messages."""
        first, others = self.files[0].path, len(self.files) - 1
        return f"{first} and {others} more" if others else str(first)

    @property
    def kind(self) -> str:
        return "+".join(dict.fromkeys(file.kind for file in self.files))

    @property
    def column(self) -> str:
        return self.files[0].column

    def sha256(self) -> str:
        """Of the bytes of the file; of several, of their sums in order: moving or renaming them changes nothing."""
        return sha256_of_all([sha256_of(file.path) for file in self.files])


@dataclass(frozen=True)
class InputFile:
    """One of them."""

    path: Path
    kind: str  # one of KINDS
    column: str = "text_a"  # of JSON lines and Parquet

    def all_texts(self) -> Iterator[str]:
        """As of `Inputs`."""
        if self.kind == "stsb":
            yield from self._pairs()
        elif self.kind == "parquet":
            yield from self._parquet()
        else:
            read: Callable[[int, str], str] = self._json if self.kind == "jsonl" else lambda _, line: line
            for number, line in self._lines():
                if self.kind == "jsonl" and not line.strip():
                    yield ""
                else:
                    yield read(number, line)

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

    def _parquet(self) -> Iterator[str]:
        import pyarrow
        import pyarrow.parquet

        row = 0
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                names = file.schema_arrow.names
                if self.column not in names:
                    raise InputError(
                        f"input={self.path}: wanted the column {self.column!r}, got {', '.join(names) or 'none'}. Name "
                        "the one of the texts: input_column=..."
                    )
                for batch in file.iter_batches(ROWS_OF_PARQUET, columns=[self.column]):
                    for row, text in enumerate(batch.column(0).to_pylist(), start=row + 1):  # noqa: B020  goes on
                        if text is not None and not isinstance(text, str):
                            raise InputError(
                                f"input={self.path}, row {row}: wanted a text in {self.column!r}, got "
                                f"{type(text).__name__}. Name the column of the texts: input_column=..."
                            )
                        yield text or ""
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"input={self.path}, row {row + 1}: wanted a sound Parquet file, got: {error}. Fetch it again."
            ) from None

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


def open_inputs(
    path: str | Sequence[str], kind: str = "auto", column: str = "text_a", *, output: Path | None = None
) -> Inputs:
    """A file, several, or a folder, whose files are taken in the order of their names, those of folders in it too.

    ``kind="auto"`` goes by the name: .jsonl, .json; .parquet; .tsv, .csv (names of STS-B's files); else lines of text.
    A name that ends in .gz is of a gzip file. What is written to ``output`` must not become input.

    Raises:
        InputError: there is no such file, or it is empty, or ``output`` is in the folder.
    """
    given = [path] if isinstance(path, str) else list(path)
    for one in given:
        if output is not None and Path(one).is_dir() and output.resolve().is_relative_to(Path(one).resolve()):
            raise InputError(f"output={output} lies in input={one}, and would be read as input. Choose one beside it.")
    found = [file for one in given for file in _files(one, kind)]
    if not found:
        raise InputError("input: the list is empty. Name at least one file of sentences: input=[FILE,FILE].")
    for file in found:
        if file.stat().st_size == 0:
            raise InputError(f"input={file}: the file is empty. Give at least one sentence.")
    return Inputs(
        tuple(InputFile(one, SUFFIXES.get(_suffix(one), "text") if kind == "auto" else kind, column) for one in found)
    )


def _files(path: str, kind: str) -> list[Path]:
    file = Path(path)
    if file.is_file():
        return [file]
    if not file.is_dir():
        raise InputError(f"input={path}: there is no such file. Name one of first sentences: text, .jsonl or .tsv.")
    wanted = [one for one, of in SUFFIXES.items() if of == kind or (kind == "auto" and one not in ALONE)]
    inside = [one for one in sorted(file.rglob("*")) if one.is_file() and _suffix(one) in wanted]
    inside = [one for one in inside if one.name not in OF_OTHERS and not _is_hidden(one.relative_to(file))]
    if not inside:
        raise InputError(
            f"input={path}: got a folder without any file whose name ends in {', '.join(wanted)} (or .gz behind it). "
            "Name a file of sentences, or a folder of some."
        )
    return inside


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
