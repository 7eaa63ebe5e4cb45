"""Streaming reader of a JSON list, one item in memory at a time."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

BLANKS = re.compile(r"[ \t\r\n]*")
BLOCK = 1 << 18  # bytes read at a time; more if an item is longer
MAX_ITEM_CHARS = 1 << 26  # characters: an unterminated string would otherwise read the full file into memory
MAX_LITERAL_CHARS = 16  # an error this close to the end of the buffer may be an incomplete literal such as "tru"


class InvalidJSONListError(ValueError):
    """Raised if the stream is not a complete JSON list. The message gives the reason and the line."""

    def __init__(self, message: str, line: int, decoded: bool = True) -> None:
        super().__init__(message)
        self.line, self.decoded = line, decoded


def items_of(stream: IO[bytes], decoder: json.JSONDecoder) -> Iterator[tuple[int, Any]]:
    """Yield, for each item of the list, the 1-based number of its first line and the parsed item.

    Raises:
        InvalidJSONListError: the stream is not a JSON list, or is incomplete.
    """
    text = _Text(stream)
    text.skip("[")
    more = text.next() != "]"
    while more:
        text.next()
        yield text.line, text.item(decoder)
        more = text.next() != "]"
        if more:
            text.skip(",")
    text.skip("]")
    if found := text.next():
        raise InvalidJSONListError(f"invalid JSON (expected nothing after the list, got {found!r})", text.line)


class _Text:
    """Buffer of the part of the stream that is in memory, with the position up to which it was parsed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.decode = stream, codecs.getincrementaldecoder("utf-8-sig")().decode
        self.text, self.place, self.line, self.ended = "", 0, 1, False

    def next(self) -> str:
        """Return the next character that is not whitespace, without consuming it, or an empty string at the end."""
        while True:
            match = BLANKS.match(self.text, self.place)
            self._go_to(match.end() if match else self.place)
            if self.place < len(self.text) or not self._read_on():
                return self.text[self.place : self.place + 1]

    def skip(self, character: str) -> None:
        """Consume ``character``, which must be the next one."""
        if (found := self.next()) != character:
            got = repr(found) if found else "the end of the file"
            raise InvalidJSONListError(f"invalid JSON (expected {character!r}, got {got})", self.line)
        self._go_to(self.place + 1)

    def item(self, decoder: json.JSONDecoder) -> Any:
        """Parse and consume the next JSON value."""
        while True:
            try:
                found, end = decoder.raw_decode(self.text, self.place)
                if end < len(self.text) or not self._read_on():
                    self._go_to(end)
                    return found
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self.text) - MAX_LITERAL_CHARS
                if not cut or len(self.text) - self.place > MAX_ITEM_CHARS or not self._read_on():
                    raise InvalidJSONListError(f"invalid JSON ({error.msg})", self.line) from None
            except (ValueError, RecursionError) as error:  # a number with thousands of digits
                raise InvalidJSONListError(f"invalid JSON ({error})", self.line) from None

    def _go_to(self, place: int) -> None:
        self.line += self.text.count("\n", self.place, place)
        self.place = place

    def _read_on(self) -> bool:
        if self.ended:
            return False
        rest = self.text[self.place :]
        data = self.stream.read(max(BLOCK, len(rest)))
        self.ended = not data
        try:
            self.text, self.place = rest + self.decode(data, self.ended), 0
        except UnicodeDecodeError as error:
            line = self.line + rest.count("\n") + error.object.count(b"\n", 0, error.start)
            raise InvalidJSONListError(
                f"expected UTF-8, got byte 0x{error.object[error.start]:02x}", line, False
            ) from None
        return True
