"""Read text files, compressed or uncompressed, as UTF-8, line by line or in full.

The encoding of a file is that of its byte-order mark; else UTF-8, if another encoding is set but the file is valid
UTF-8 with characters other than ASCII; else the encoding set by the user; else UTF-8. A file that is not UTF-8 is read
as cp1252, which Excel and older Windows programs write, with a warning that shows samples, unless it is UTF-8 with a
few damaged bytes or has bytes that cp1252 lacks.
"""

import codecs
import gzip
import io
import logging
import re
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

from contrastive_encoders.core import InputError

ENCODING_MEANING = (  # for config keys with this name
    "encoding of the text files that are not UTF-8 and have no byte-order mark, such as latin-1 or gb18030; null: "
    "cp1252"
)
LINE = "text"  # the name of the value of a line of a .txt file, or of a document
BLOCK = 1 << 18  # bytes read at a time
LINES_BLOCK = 1 << 15  # bytes split into lines at a time; more if a line is longer
BYTE_ORDER_MARKS = {  # the longer ones first, because the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8",
}
WIDE_CODECS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")  # encodings that have zero bytes in ASCII characters
CP1252 = "cp1252"
UNDEFINED_BYTES = (
    b"\0\x81\x8d\x8f\x90\x9d"  # bytes that are not characters in cp1252, and zero, which texts do not contain
)
SAMPLE = re.compile(rb'[^\s,;|"]{0,20}[\x80-\xff][^\r\n\t,;|"]{0,20}')  # within a cell: no separators, no quotes
MAX_SAMPLES = 3
MAX_TITLE_CHARS = 60  # shown in a message
EMPTY = "the file is empty. Remove it or write it again"
UNREADABLE = (EOFError, zlib.error, OSError)


class ParsedRow(NamedTuple):
    """A row that was read, with the values that it contains in the file. A blank line has no values. A line of a .txt
    file is its ``text``.
    """

    values: dict[str, Any]
    line: int  # 1-based line where it begins, or row of a Parquet file


Fault = Literal["empty", "undecodable", "malformed"]


class BadRow(NamedTuple):
    """A row that cannot be read. ``ends_file`` means that the rest of the file cannot be read, so more than this row is
    missing.
    """

    message: str
    line: int  # 0: the header of the file
    fault: Fault = "malformed"
    ends_file: bool = False


class Encoding(NamedTuple):
    """The encoding of text files without a byte-order mark."""

    name: str | None = None  # None: UTF-8, or cp1252 if a file is not UTF-8
    key: str = ""  # the config key that sets it; empty if there is none

    @property
    def codec(self) -> str | None:
        """The name of the codec, or None if no encoding is set.

        Raises:
            InputError: Python has no text encoding of this name.
        """
        if self.name is None:
            return None
        try:
            found = codecs.lookup(self.name)
            if found._is_text_encoding:
                return found.name
        except (LookupError, ValueError):
            pass
        raise InputError(
            key=self.key,
            value=self.name,
            expected="the name of a text encoding, such as cp1252, latin-1, cp850, gb18030, or utf-16-le",
            hint=f"Leave {self.key} out for UTF-8 and cp1252.",
        )

    def hint(self) -> str:
        """Return a suggestion for files in an encoding other than UTF-8 and cp1252."""
        return f"set {self.key}=NAME" if self.key else "convert it: iconv -f NAME -t utf-8 FILE > NEW_FILE"


AUTO = Encoding()

log = logging.getLogger(__name__)


Piece = tuple[int, Any]  # a line and its content, not decoded yet, so that skipping it is cheap


class Form:
    """Base class of readers of a file format. ``pieces`` yields the raw content of each row, and ``row`` parses it."""

    blank = re.compile(rb"(?!)")  # a line without values; .txt files have none

    def __init__(self, path: Path, columns: Sequence[str] = (), encoding: Encoding = AUTO) -> None:
        self.path, self.columns, self.encoding = path, columns, encoding

    def pieces(self) -> Iterator[Piece | BadRow]:
        return lines_of(self.path, self.encoding)

    def row(self, line: int, piece: Any) -> ParsedRow | BadRow:
        raise NotImplementedError

    def title_advice(self) -> str:
        """Return advice if the first row of a table seems to be a title above the header, otherwise ""."""
        return ""

    def sheets_advice(self) -> str:
        """Return the begin of advice if the file has other sheets than the one that is read, otherwise ""."""
        return ""


class Lines(Form):
    """Reader of .txt files: one text per line."""

    def row(self, line: int, piece: bytes) -> ParsedRow | BadRow:
        text = decode_utf8(piece, line, self.encoding)
        return text if isinstance(text, BadRow) else ParsedRow({LINE: text}, line)


def title_advice(rows: Iterable[tuple[int, Sequence[str | None]]]) -> str:
    """Return advice if the first of these numbered rows has one cell, and a later row has more; otherwise ""."""
    filled = [(number, cells) for number, cells in rows if any(cells)]
    header = next((number for number, cells in filled if sum(map(bool, cells)) > 1), 0)
    if not header or any(filled[0][1][1:]):
        return ""
    title = repr(filled[0][1][0])[:MAX_TITLE_CHARS]
    return (
        f"The first row has one filled cell, {title}, and the header seems to be in row {header}. Delete the rows "
        "above it."
    )


def lines_of(
    path: Path, encoding: Encoding = AUTO, *, keep_ends: bool = False, lone_cr: bool = True
) -> Generator[tuple[int, bytes] | BadRow]:
    """Yield the number and the bytes of each line. Lines end at \\n and \\r\\n, never at U+2028 or similar characters.

    A single \\r ends a line, too; with ``lone_cr=False`` only in a file without \\n among its first bytes.
    """
    number = 0
    try:
        with open_text(path, encoding) as stream:
            for number, line in enumerate(_split(stream, lone_cr), start=1):
                yield number, line if keep_ends else line.rstrip(b"\r\n")
    except UNREADABLE as error:
        yield describe_read_error(error, number + 1)


def _split(stream: IO[bytes], lone_cr: bool) -> Iterator[bytes]:
    """Split a stream into lines, including their line endings."""
    rest = b""
    while data := stream.read(max(LINES_BLOCK, len(rest))):
        rest += data
        if not lone_cr and b"\n" in rest:
            lines = io.BytesIO(rest).readlines()
        else:
            lines, lone_cr = rest.splitlines(keepends=True), True
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()  # a last \r may be half of \r\n
        yield from lines
    if rest:
        yield rest


def decode_utf8(text: bytes, number: int, encoding: Encoding, of: str = "line") -> str | BadRow:
    """Decode the raw content of a row, or return a `BadRow` with the position of the first byte that cannot be
    decoded.
    """
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        wanted = "UTF-8" if encoding.name is None else encoding.name
        wrong = f"expected {wanted}, got byte 0x{text[error.start]:02x} at byte {error.start + 1} of the {of}"
        return BadRow(f"{wrong}. If the file has another encoding, {encoding.hint()}", number, "undecodable")


def require_valid_row(row: ParsedRow | BadRow, path: Path) -> ParsedRow:
    """Return a valid row unchanged, or raise InputError with the location of an invalid row."""
    if isinstance(row, BadRow):
        raise bad_row_error(row, path)
    return row


def bad_row_error(row: BadRow, path: Path, hint: str = "") -> InputError:
    """Convert an unreadable row to an InputError, whose ``value`` is the kind of problem."""
    location = f"{path}:{row.line}" if row.line else str(path)
    return InputError(
        f"{location}: {row.message}. {hint}".strip(), value=row.fault, location=location, hint=hint or None
    )


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a possibly compressed file for sequential reading."""
    if path.suffix.lower() != ".gz":
        return path.open("rb", BLOCK)
    return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), BLOCK)


def open_text(path: Path, encoding: Encoding = AUTO) -> IO[bytes]:
    """Open a text file. Its bytes are converted to UTF-8 without a byte-order mark.

    Bytes that cannot be decoded are left as they are, which is not valid UTF-8.
    """
    stream = open_decompressed(path)
    try:
        begin = cast(io.BufferedReader, stream).peek(LINES_BLOCK)
        mark = next((mark for mark in BYTE_ORDER_MARKS if begin.startswith(mark)), b"")
        codec = BYTE_ORDER_MARKS[mark] if mark else encoding.codec
        if codec is None and (name := _wide_codec(begin)):
            hint = Encoding(None, encoding.key).hint().replace("NAME", name)
            raise _EncodingMismatchError(
                f"expected UTF-8, got {name[:6].upper()} without a byte-order mark. Please {hint}"
            )
        if codec is None:
            return io.BufferedReader(_Utf8OrCp1252(stream, path, encoding), BLOCK)
        stat = path.stat()
        if not mark and codec not in ("utf-7", "utf-8") and _is_utf8(path, codec, (stat.st_size, stat.st_mtime_ns)):
            codec = "utf-8"
        if codec != "utf-8":
            return io.BufferedReader(_Utf8Stream(stream, codec), BLOCK)
        stream.read(len(mark))
    except BaseException:
        stream.close()
        raise
    return stream


def _wide_codec(begin: bytes) -> str:
    """Return the UTF-16 or UTF-32 codec that the first bytes of a file without a byte-order mark suggest, or "" for
    other encodings.

    Such a file has zero bytes next to its line ends, or else next to its spaces and at least one line end, or else next
    to its first two characters.
    """
    if b"\0" not in begin:
        return ""
    for name in WIDE_CODECS:
        size = len(" ".encode(name))
        units = Counter(begin[at : at + size] for at in range(0, len(begin), size))
        ends, blanks = units["\n".encode(name)], units[" ".encode(name)]
        if ends > begin.count(b"\n") / 2 or (blanks > begin.count(b" ") / 2 and (ends or b"\n" not in begin)):
            return name
    first = re.fullmatch(rb"((?:[^\0]\0){2})|(?:\0[^\0]){2}", begin[:4], re.DOTALL)
    return "" if first is None else "utf-16-le" if first[1] else "utf-16-be"


@cache  # a command reads a file several times
def _is_utf8(path: Path, codec: str, identity: tuple[int, int]) -> bool:
    """Return whether a file for which another encoding is set is valid UTF-8, as some files of a directory may be.

    In UTF-16 and UTF-32, ASCII characters have zero bytes. In other encodings, ASCII is the same.
    """
    decoder, is_ascii, is_wide = codecs.getincrementaldecoder("utf-8")(), True, codec.startswith("utf")
    try:
        with open_decompressed(path) as stream:
            while data := stream.read(BLOCK):
                decoder.decode(data)
                is_ascii &= data.isascii()
                if is_wide and b"\0" in data:
                    return False
            decoder.decode(b"", final=True)
    except (UnicodeDecodeError, *UNREADABLE):  # the reader of the file reports the latter
        return False
    if is_ascii and not is_wide:
        return False
    log.warning("%s: valid UTF-8, not read as %s.", path, codec)
    return True


@cache  # a command reads a file several times
def _is_cp1252(path: Path, key: str, identity: tuple[int, int]) -> bool:
    """Return whether a file that is not valid UTF-8 should be read as cp1252, and if so, log a warning.

    It is not if cp1252 lacks one of its bytes. It is also not if its valid multi-byte UTF-8 characters are at least as
    many as its invalid bytes: then it is a UTF-8 file with a few damaged bytes.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    valid = invalid = 0
    samples = dict[str, None]()
    with open_decompressed(path) as stream:
        while data := stream.read(BLOCK):
            if any(byte in data for byte in UNDEFINED_BYTES):
                return False
            text = decoder.decode(data)
            not_ascii = len(text) - len(text.encode("ascii", "ignore"))
            damaged = len(text) - len(text.encode("utf-8", "ignore").decode())
            valid, invalid = valid + not_ascii - damaged, invalid + damaged
            if len(samples) < MAX_SAMPLES:
                samples.update(dict.fromkeys(found.decode(CP1252).strip() for found in SAMPLE.findall(data)))
    if 0 < valid >= invalid:
        return False
    shown = ", ".join(f'"{sample}"' for sample in list(samples)[:MAX_SAMPLES])
    log.warning(
        "%s: not UTF-8, read as cp1252: %s. If these are not the right characters, %s.",
        *(path, shown, Encoding(None, key).hint()),
    )
    return True


def describe_read_error(error: Exception, line: int) -> BadRow:
    """Return a `BadRow` that explains why the rest of a file, from a line on, cannot be read, and how to fix this."""
    if isinstance(error, EOFError):
        message = "the gzip stream ends early: the file is truncated. Copy or download it again (check with `gzip -t`)"
    elif isinstance(error, zlib.error | gzip.BadGzipFile):
        message = (
            f"not a valid gzip stream ({error}). Copy the file again, or compress it with `gzip` if it is not "
            "compressed"
        )
    elif isinstance(error, _EncodingMismatchError):
        return BadRow(str(error), line, "undecodable", ends_file=True)
    else:
        message = f"cannot be read ({error}). Copy the file again"
    return BadRow(message, line, ends_file=True)


class _EncodingMismatchError(OSError):
    """Raised if a file is not in the encoding that its byte-order mark or the user's setting names."""


class _ConvertedStream(io.RawIOBase):
    """Base class of streams that convert another stream block by block."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.ready = stream, b""

    def convert(self, data: bytes, ended: bool) -> bytes:
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ended = False
        while not self.ready and not ended:
            data = self.stream.read(BLOCK)
            ended = not data
            self.ready = self.convert(data, ended)
        with memoryview(buffer).cast("B") as view:
            taken = min(len(view), len(self.ready))
            view[:taken] = self.ready[:taken]
        self.ready = self.ready[taken:]
        return taken

    def close(self) -> None:
        self.stream.close()
        super().close()


class _Utf8Stream(_ConvertedStream):
    """Stream that converts bytes in another encoding to UTF-8."""

    def __init__(self, stream: IO[bytes], codec: str) -> None:
        super().__init__(stream)
        self.codec, self.bytes_read = codec, 0
        self.decoder = codecs.getincrementaldecoder(codec)("surrogateescape")

    def convert(self, data: bytes, ended: bool) -> bytes:
        self.bytes_read += len(data)
        try:
            return self.decoder.decode(data, ended).encode(errors="surrogateescape")
        except UnicodeError as error:
            at, why = self.bytes_read, str(error)
            if isinstance(error, UnicodeDecodeError):
                at, why = at - len(error.object) + error.start + 1, error.reason
            raise _EncodingMismatchError(
                f"expected {self.codec.upper()}, got an invalid sequence at byte {at} of the file ({why}). Copy "
                "the file again, or write it as UTF-8"
            ) from None


class _Utf8OrCp1252(_ConvertedStream):
    """Stream that leaves UTF-8 unchanged and converts cp1252 to UTF-8.

    The file is searched as soon as it is known not to be UTF-8. The bytes before that point are kept as
    they are.
    """

    def __init__(self, stream: IO[bytes], path: Path, encoding: Encoding) -> None:
        super().__init__(stream)
        self.path, self.key, self.codec, self.held = path, encoding.key, "", b""
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def convert(self, data: bytes, ended: bool) -> bytes:
        data = self.held + data
        self.held = b""
        if not self.codec:
            try:
                self.decoder.reset()
                self.decoder.decode(data, ended)
                self.held = self.decoder.getstate()[0]  # a character that continues in the next block
                return data[: len(data) - len(self.held)]
            except UnicodeDecodeError:
                stat = self.path.stat()
                is_cp1252 = _is_cp1252(self.path, self.key, (stat.st_size, stat.st_mtime_ns))
                self.codec = CP1252 if is_cp1252 else "utf-8"
        return data if self.codec == "utf-8" else data.decode(CP1252).encode()
