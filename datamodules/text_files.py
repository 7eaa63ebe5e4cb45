"""Raw text out of files: .txt, .jsonl and .parquet, where .txt and .jsonl may be gzipped.

Everything a file can have wrong with it is found here and named with file and line.
"""

import difflib
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from contracts import InputError

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")
TEXT_SUFFIXES = (".txt", ".txt.gz")
LONGEST_QUOTE = 60  # characters of a bad line shown in a message


class TextFile(NamedTuple):
    path: Path
    in_folder: bool  # found by walking a folder, where a .txt is one document by default


class Row(NamedTuple):
    """One record of a file; blank texts are rows too."""

    text: str
    line: int  # 1-based line, or row of a parquet file
    split: str | None  # value of a "split" column


class BadRow(NamedTuple):
    """A record that could not be read; the caller fails or counts it."""

    message: str
    line: int


def suffix_of(path: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """ ".jsonl.gz" for "a.b.jsonl.gz"; empty if the file is none of ours."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(suffixes, key=len, reverse=True) if name.endswith(suffix)), "")


def list_files(paths: Sequence[str | Path], suffixes: Sequence[str] = SUFFIXES) -> list[TextFile]:
    """Files as given, folders walked in sorted order; InputError where there is nothing to read."""
    files: list[TextFile] = []
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            files += [TextFile(found, True) for found in _walk(path, suffixes)]
        elif path.exists():
            if not suffix_of(path, suffixes):
                raise InputError(
                    f"{path}: cannot tell what this file is by its name. Wanted one of {', '.join(suffixes)}; "
                    f"got {path.name!r}. Rename or convert it."
                )
            files.append(TextFile(path, False))
        else:
            raise InputError(_missing(path))
    if not files:
        raise InputError("no data: the list of paths is empty. Pass data.path=FILE_OR_FOLDER.")
    return files


def _walk(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    everything = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    visible = [path for path in everything if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    found = [path for path in visible if suffix_of(path, suffixes)]
    if not found:
        seen = f"{len(visible)} other file(s), e.g. {visible[0].name}" if visible else "an empty folder"
        raise InputError(
            f"{folder}: no file to read. Wanted {', '.join(suffixes)} in this folder or below; got {seen}."
        )
    return found


def _missing(path: Path) -> str:
    parent = path.parent
    while not parent.exists():
        path, parent = parent, parent.parent
    siblings = [sibling.name for sibling in parent.iterdir()] if parent.is_dir() else []
    close = difflib.get_close_matches(path.name, siblings, n=3)
    hint = f" Did you mean {' or '.join(str(parent / name) for name in close)}?" if close else " Check data.path."
    return f"{path}: no such file or folder (seen from {Path.cwd()}).{hint}"


def read_rows(path: Path, whole_file: bool) -> Iterator[Row | BadRow]:
    """All records of a file; one that breaks off ends in a BadRow. Memory: a line, a parquet batch, or the file."""
    if path.stat().st_size == 0:
        yield BadRow("the file is empty. Remove it or write it again", 1)
    elif suffix_of(path) == ".parquet":
        yield from _parquet_rows(path)
    elif suffix_of(path) in TEXT_SUFFIXES:
        yield from _whole_text(path) if whole_file else _text_rows(path)
    else:
        yield from _json_rows(path)


def lines_of(path: Path) -> Iterator[tuple[int, bytes] | BadRow]:
    """Lines are cut at \\n only: str.splitlines would also cut at U+2028 and its like, inside a document."""
    number = 0
    is_gzip = path.name.lower().endswith(".gz")
    with gzip.open(path) if is_gzip else path.open("rb") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                yield number, line.rstrip(b"\r\n")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield BadRow(_broken_gzip(error), number + 1)


def _broken_gzip(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip stream ends early: the file was cut short. Copy or download it again (check with `gzip -t`)"
    return f"not a sound gzip stream ({error}). Copy it again, or drop the .gz from its name if it is not compressed"


def decoded(line: bytes, number: int) -> str | BadRow:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = f"wanted UTF-8, got byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line"
        codec = "UTF-16" if line.startswith((b"\xff\xfe", b"\xfe\xff")) else "ENCODING"
        return BadRow(f"{wrong}. Convert the file: iconv -f {codec} -t UTF-8", number)


def _text_rows(path: Path) -> Iterator[Row | BadRow]:
    for item in lines_of(path):
        if isinstance(item, BadRow):
            yield item
            continue
        number, line = item
        text = decoded(line, number)
        yield text if isinstance(text, BadRow) else Row(text, number, None)


def _whole_text(path: Path) -> Iterator[Row | BadRow]:
    parts: list[str] = []
    for row in _text_rows(path):
        if isinstance(row, BadRow):
            yield row  # the file is one document: half of it is not
            return
        parts.append(row.text)
    yield Row("\n".join(parts), 1, None)


def _json_rows(path: Path) -> Iterator[Row | BadRow]:
    for item in lines_of(path):
        if isinstance(item, BadRow):
            yield item
            continue
        number, line = item
        text = decoded(line, number)
        if isinstance(text, BadRow):
            yield text
        elif not text.strip():
            yield Row("", number, None)
        else:
            yield _json_row(text, number)


def _json_row(line: str, number: int) -> Row | BadRow:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        return BadRow(f"broken JSON ({error}) in {line[:LONGEST_QUOTE]!r}. Wanted one JSON object per line", number)
    if not isinstance(record, dict):
        return BadRow(f'wanted a JSON object with a field "text", got {type(record).__name__}', number)
    if "text" not in record:
        fields = ", ".join(map(repr, record)) or "none"
        return BadRow(f'no field "text"; the fields are {fields}. Rename the one that holds the document', number)
    return checked_row(record["text"], record.get("split"), number)


def checked_row(text: object, split: object, line: int) -> Row | BadRow:
    """A Row if the values are of the right type, else what is wrong with them."""
    if not isinstance(text, str):
        return BadRow(f'wanted a string in "text", got {type(text).__name__} {str(text)[:LONGEST_QUOTE]!r}', line)
    if split is not None and not isinstance(split, str):
        return BadRow(f'wanted "train" or "valid" in "split", got {type(split).__name__} {split!r}', line)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # JSON may spell half of a surrogate pair
            return BadRow(f"half a surrogate pair, \\u{ord(text[error.start]):04x}, is no character", line)
    return Row(text, line, split)


def _parquet_rows(path: Path) -> Iterator[Row | BadRow]:
    import pyarrow
    import pyarrow.parquet

    line = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if "text" not in names:
                fields = ", ".join(map(repr, names)) or "none"
                yield BadRow(f'no column "text"; the columns are {fields}. Rename the one that holds the document', 1)
                return
            for batch in file.iter_batches(256, columns=[name for name in ("text", "split") if name in names]):
                splits = batch["split"].to_pylist() if "split" in names else [None] * len(batch)
                for text, split in zip(batch["text"].to_pylist(), splits, strict=True):
                    line += 1
                    yield checked_row(text, split, line)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        yield BadRow(f"not a sound parquet file ({error}). Copy or write it again", line + 1)
