"""Text files as UTF-8, compressed or not, by line or whole.

A byte-order mark says that a file is UTF-8, UTF-16 or UTF-32; without one it is UTF-8.
"""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from contracts import InputError

LINE = "text"  # the name of what a line of a .txt file holds, or a document
BLOCK = 1 << 18  # bytes read at a time
MARKS = {  # the longer ones first: UTF-32 begins as UTF-16 does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8",
}
CONVERT = "Convert the file from the encoding that it has, e.g. `iconv -f latin1 -t utf-8`"
EMPTY = "the file is empty. Remove it or write it again"
UNREADABLE = (EOFError, zlib.error, OSError)


class Row(NamedTuple):
    """One row as it stands in the file; no values where a line is blank. A line of a .txt file is its ``text``."""

    values: dict[str, Any]
    line: int  # 1-based line where it begins, or row of a Parquet file


class BadRow(NamedTuple):
    """A row that could not be read. What breaks off ends in one."""

    message: str
    line: int


Piece = tuple[int, Any]  # a line and what stands there, not decoded yet: passing over it costs little


class Form:
    """How one kind of file is read: ``pieces`` finds where rows begin, ``row`` makes one of a piece."""

    blank = re.compile(rb"(?!)")  # a line without values; a .txt has none

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        self.path, self.columns = path, columns

    def pieces(self) -> Iterator[Piece | BadRow]:
        return lines_of(self.path)

    def row(self, line: int, piece: Any) -> Row | BadRow:
        raise NotImplementedError


class Lines(Form):
    """Reads .txt: a text per line."""

    def row(self, line: int, piece: bytes) -> Row | BadRow:
        text = decoded(piece, line)
        return text if isinstance(text, BadRow) else Row({LINE: text}, line)


def lines_of(path: Path) -> Iterator[tuple[int, bytes] | BadRow]:
    """Yield number and bytes of each line, cut at \\n only: U+2028 and its like may stand inside a document."""
    number = 0
    try:
        with opened(path) as stream:
            for number, line in enumerate(stream, start=1):
                yield number, line.rstrip(b"\r\n")
    except UNREADABLE as error:
        yield BadRow(broken(error), number + 1)


def decoded(text: bytes, number: int, of: str = "line") -> str | BadRow:
    """Return the text of a line, or of another piece, or what is no UTF-8 in it."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        wrong = f"wanted UTF-8, got byte 0x{text[error.start]:02x} at byte {error.start + 1} of the {of}"
        return BadRow(f"{wrong}. {CONVERT}", number)


def sound(row: Row | BadRow, path: Path) -> Row:
    """Return the row, or raise InputError with its place."""
    if isinstance(row, BadRow):
        raise InputError(f"{path}:{row.line}: {row.message}.")
    return row


def unpacked(path: Path) -> IO[bytes]:
    """Open a file whose bytes are read in their order."""
    if path.suffix.lower() != ".gz":
        return path.open("rb", BLOCK)
    return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), BLOCK)


def opened(path: Path) -> IO[bytes]:
    """Open a text file; its bytes are UTF-8 without a mark, whatever they are in the file."""
    stream = unpacked(path)
    try:
        begin = cast(io.BufferedReader, stream).peek(4)
        mark = next((mark for mark in MARKS if begin.startswith(mark)), b"")
        if MARKS.get(mark, "utf-8") != "utf-8":
            return io.BufferedReader(_AsUtf8(stream, MARKS[mark]), BLOCK)
        stream.read(len(mark))
    except BaseException:
        stream.close()
        raise
    return stream


def broken(error: Exception) -> str:
    """Say what is wrong with a file that cannot be read, and what to do."""
    if isinstance(error, EOFError):
        return "the gzip stream ends early: the file was cut short. Copy or download it again (check with `gzip -t`)"
    if isinstance(error, zlib.error | gzip.BadGzipFile):
        return f"not a sound gzip stream ({error}). Copy it again, or pack it with `gzip` if it is not packed yet"
    return str(error) if isinstance(error, _NotAsMarked) else f"cannot be read ({error}). Copy it again"


class _NotAsMarked(OSError):
    """A file is not in the encoding that its mark says."""


class _AsUtf8(io.RawIOBase):
    """Bytes of another encoding, as UTF-8."""

    def __init__(self, stream: IO[bytes], codec: str) -> None:
        self.stream, self.codec = stream, codec
        self.decoder = codecs.getincrementaldecoder(codec)()
        self.read_so_far, self.ready = 0, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ended = False
        while not self.ready and not ended:
            data = self.stream.read(BLOCK)
            ended = not data
            self.read_so_far += len(data)
            try:
                self.ready = self.decoder.decode(data, ended).encode()
            except UnicodeDecodeError as error:
                at = self.read_so_far - len(error.object) + error.start + 1
                raise _NotAsMarked(
                    f"wanted {self.codec.upper()}, as the first bytes say, got what is none at byte {at} of the file "
                    f"({error.reason}). Copy it again, or write it as UTF-8"
                ) from None
        with memoryview(buffer).cast("B") as view:
            taken = min(len(view), len(self.ready))
            view[:taken] = self.ready[:taken]
        self.ready = self.ready[taken:]
        return taken

    def close(self) -> None:
        self.stream.close()
        super().close()
