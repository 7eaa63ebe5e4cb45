"""Readers of delimited tables: a header line, then rows of values separated by commas, semicolons, tabs, or bars."""

import csv
import logging
import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

from contrastive_encoders.io.text_files import (
    BadRow,
    Encoding,
    Form,
    ParsedRow,
    Piece,
    decode_utf8,
    lines_of,
    title_advice,
)

# columns of STS-B's files, which have no header
STSB = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
# characters of a .csv cell: an unterminated quotation mark would otherwise include the rest of the file
MAX_CELL_CHARS = 1 << 24
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
EXCEL_SEPARATOR = re.compile(r"sep=([,;|\t])[;,\t]*")  # a first line that Excel interprets and does not display
LINES_INSPECTED = 50  # lines, to detect the separator
QUOTED_LINES = 5_000  # lines of a .tsv, to detect whether its texts are quoted
MAX_LINES_BEFORE_QUOTES = 1_000_000  # lines without quotation marks at the start of a .tsv, after which none are sought
MIN_QUOTED = 3  # cells that are quoted because they contain a comma
QUOTED_CELL = re.compile(r'("(?:[^"]++|"")*+"|[^"\t\n]*+)(\t|\n|\Z)')
SPECIAL = re.compile(r'[,"\t\n]')
CELL = r'(?:[^"%s]*|"(?:[^"]|"")*")'  # of a line, with the escaped separator
MAX_TITLE_LINES = 10  # lines above the header that are recognized as a title

Line = tuple[int, bytes] | BadRow

log = logging.getLogger(__name__)


class CommaTable(Form):
    """Reader of .csv as in RFC 4180: a quoted text may contain the separator, doubled quotation marks, and line breaks.

    The separator is detected from the first lines; the default is a comma.
    """

    usual = ","
    header: Sequence[str] = ()
    blank = re.compile(rb"[^\S\t]*")  # for lines that are split at tabs

    def pieces(self) -> Iterator[Piece | BadRow]:
        texts = self._first_lines()
        if stated := EXCEL_SEPARATOR.fullmatch(texts[0]):
            lines = lines_of(self.path, self.encoding, keep_ends=True)
            next(lines)
            return self._records(lines, stated[1], skipped=1)
        separator = self.separator_of(texts)
        if is_stsb(texts[0]) or self.is_raw(separator):
            return self._below_header(lines_of(self.path, self.encoding, lone_cr=False))
        if separator != self.usual:
            _log_separator(self.path, separator)
        return self._records(lines_of(self.path, self.encoding, keep_ends=True), separator)

    def _first_lines(self) -> list[str]:
        lines = lines_of(self.path, self.encoding)
        first = list(islice(lines, LINES_INSPECTED))
        lines.close()
        return [item[1].decode(errors="replace") for item in first if not isinstance(item, BadRow)] or [""]

    def title_advice(self) -> str:
        lines = self._first_lines()
        starts = range(min(len(lines), MAX_TITLE_LINES))
        separator = next(filter(None, (detect_separator(lines[start:], "") for start in starts)), self.usual)
        return title_advice(enumerate((line.split(separator) for line in lines), start=1))

    def separator_of(self, lines: Sequence[str]) -> str:
        return detect_separator(lines)

    def is_raw(self, separator: str) -> bool:
        """Return whether the quotation marks in the file are part of the texts instead of enclosing them."""
        return False

    def row(self, line: int, piece: Any) -> ParsedRow | BadRow:
        if isinstance(piece, list):
            row = _cells(self.header, piece, line)
            has_title = isinstance(row, BadRow) and len(self.header) == 1 and line <= LINES_INSPECTED
            if has_title and (advice := self.title_advice()):
                return BadRow(f"{advice} If the first row is the header, quote texts that contain the separator", line)
            return row
        text = decode_utf8(piece, line, self.encoding)
        if isinstance(text, BadRow):
            return text
        cells = [] if self.blank.fullmatch(piece) else text.split("\t")
        return _cells(self.header, cells[: len(STSB)] if self.header is STSB else cells, line)

    def _below_header(self, lines: Iterator[Line]) -> Iterator[Piece | BadRow]:
        """Yield the rows after the header. The files of STS-B have no header."""
        for item in islice(lines, 1):
            text = item if isinstance(item, BadRow) else decode_utf8(item[1], item[0], self.encoding)
            if isinstance(text, BadRow):
                yield text
                return
            self.header = STSB if is_stsb(text) else column_names(text.split("\t"))
            if self.header is STSB:
                yield item
            elif (bad := bad_header(self.header)) is not None:
                yield bad
                return
        yield from lines

    def _records(self, lines: Iterator[Line], separator: str, skipped: int = 0) -> Iterator[Piece | BadRow]:
        # number of the last line that was read; lines to read again; lines of this record, and errors in them
        number, again, record, unreadable = skipped, deque[Line](), list[Line](), list[BadRow]()

        def texts() -> Iterator[str]:
            nonlocal number
            while item := again.popleft() if again else next(lines, None):
                record.append(item)
                number = _number(item)
                text = item if isinstance(item, BadRow) else decode_utf8(item[1], number, self.encoding)
                if isinstance(text, BadRow):
                    unreadable.append(text)
                    yield "\n"
                else:
                    yield f"{text[:-2]}\n" if text.endswith("\r\n") else text

        rows, cells = csv.reader(texts(), delimiter=separator, strict=True), list[str]()
        while True:
            line, before, rest = number + 1, csv.field_size_limit(MAX_CELL_CHARS), list[Line]()
            record.clear()
            try:
                cells = next(rows)
                cells = cells if self.header else column_names(cells)
                bad = None if self.header else bad_header(cells)
            except StopIteration:
                return
            except csv.Error as error:
                end = f" and extends to line {number}" if number > line else ""
                bad = BadRow(
                    f"invalid CSV ({error}) in the record that begins here{end}. Quote texts that contain a separator, "
                    "a quotation mark, or a line break, and double the quotation marks inside of them",
                    line,
                )
                rest = record[1:]
                rows = csv.reader(texts(), delimiter=separator, strict=True)  # at the end of the file, it has ended
            finally:
                csv.field_size_limit(before)  # it is a setting of the process
            if unreadable or bad:
                worst = next((one for one in unreadable if one.ends_file), None)
                yield worst or (unreadable[0] if unreadable and not rest else cast(BadRow, bad))
                if worst or not self.header:
                    return
                unreadable.clear()
                if self._are_rows(rest, separator):
                    again.extendleft(reversed(rest))
                    number = line
                else:
                    why = f"this line is part of the invalid record that begins in line {line}"
                    yield from (
                        BadRow(why, _number(item)) for item in rest if isinstance(item, BadRow) or item[1].strip()
                    )
            elif self.header:
                yield line, cells
            else:
                self.header = cells

    def _are_rows(self, lines: Sequence[Line], separator: str) -> bool:
        """Return whether the lines after an unclosed quotation mark, which the reader took for the rest of its text,
        are rows of the table and not lines of a text.

        Rows have as many columns as the header, and a quotation mark only around a cell; a text of several lines may
        begin in the last one. In a table with one column, each line of a text would be a row.
        """
        if len(self.header) < 2:
            return False
        mark = re.escape(separator)
        row = re.compile(rf"{CELL % mark}(?:{mark}{CELL % mark}){{{len(self.header) - 1}}}")
        start = re.compile(rf'(?:{CELL % mark}{mark}){{0,{len(self.header) - 1}}}"(?:[^"]|"")*')
        found = [decode_utf8(item[1], item[0], self.encoding) for item in lines if not isinstance(item, BadRow)]
        texts = [text.rstrip("\r\n") for text in found if isinstance(text, str)]
        while texts and not texts[-1].strip():
            texts.pop()
        *others, last = texts or [""]
        return all(map(row.fullmatch, others)) and (row.fullmatch(last) or start.fullmatch(last)) is not None


class TabTable(CommaTable):
    """Reader of .tsv. Quotation marks are part of the text, because published data sets contain unpaired ones, unless
    they enclose texts, as in the files of pandas and Excel.

    If the header has no tab but another separator, the file is read as a .csv.
    """

    usual = "\t"

    def separator_of(self, lines: Sequence[str]) -> str:
        found = "\t" if "\t" in lines[0] else detect_separator(lines, "")
        return found or "\t"

    def is_raw(self, separator: str) -> bool:
        if separator != "\t":
            return False
        stat = self.path.stat()
        return not _has_quotes(self.path, self.encoding, (stat.st_size, stat.st_mtime_ns))


@cache  # a command reads a file several times
def _has_quotes(path: Path, encoding: Encoding, identity: tuple[int, int]) -> bool:
    """Return whether the quotation marks of a .tsv enclose cells, and log it. The header and the lines from the first
    quotation mark on are inspected.
    """
    lines, sample, is_start = lines_of(path, encoding), list[bytes](), False
    for number, item in enumerate(lines):
        if not isinstance(item, BadRow) and (number == 0 or len(sample) > 1 or b'"' in item[1]):
            sample.append(item[1])
        if is_start := len(sample) > QUOTED_LINES or number > MAX_LINES_BEFORE_QUOTES:
            break
    lines.close()
    is_quoted = _is_quoted("".join(f"{line.decode(errors='replace')}\n" for line in sample), is_start=is_start)
    if is_quoted:
        log.info("%s: quotation marks enclose texts, as in a .csv", path)
    return is_quoted


def _is_quoted(text: str, *, is_start: bool) -> bool:
    """Return whether the quotation marks in the text of a .tsv enclose cells. ``is_start``: more lines follow.

    They do if there are no others, except for doubled ones inside of them, and if in addition one of these is true: a
    column name is quoted, a cell is empty or contains doubled ones, the quoted cells are those with a comma, as in
    Excel's files, or more lines would be malformed if the quotation marks were part of the texts. They do not if lines
    that would be rows are part of a quoted cell, as between the two marks of a quotation over several rows.
    """
    place = record = columns = width = malformed = quoted = with_special = unquoted_with_comma = 0
    is_shown = False
    while place < len(text) and (cell := QUOTED_CELL.match(text, place)):
        content, end = cell.groups()
        if content.startswith('"'):
            inner = content[1:-1]
            is_shown |= not width or not inner or '""' in inner
            quoted, with_special = quoted + 1, with_special + (SPECIAL.search(inner) is not None)
        else:
            unquoted_with_comma += "," in content
        columns, place = columns + 1, cell.end()
        if end != "\t":
            lines = text[record : place - 1].split("\n")
            if len(lines) > 1 and width > 1 and lines[0].count("\t") == lines[-1].count("\t") == width - 1:
                return False
            malformed += width > 0 and columns != width and (columns, content) != (1, "")
            record, width, columns = place, width or columns, 0
    if place < len(text) and not (is_start and text[place] == '"'):  # the last record of a start may be incomplete
        return False
    is_shown |= quoted >= MIN_QUOTED and quoted == with_special and not unquoted_with_comma
    malformed_as_text = sum(line.count("\t") + 1 != width for line in text[:record].split("\n") if line)
    return malformed < malformed_as_text or (is_shown and malformed == malformed_as_text)


def _number(item: Line) -> int:
    return item.line if isinstance(item, BadRow) else item[0]


def detect_separator(lines: Sequence[str], otherwise: str = ",") -> str:
    """Return the separator that splits the header into two or more columns, and most of the following records into the
    same number of columns.

    The separator with the highest share of such records is preferred, then a comma, then the one with the most columns.
    """
    found = list[tuple[float, bool, int, str]]()
    for separator in SEPARATORS:
        header, *records = _records_of(lines, separator) or [[]]
        alike = sum(len(cells) == len(header) for cells in records) / max(1, len(records))
        if len(header) > 1 and (alike > 0.5 or not records):
            found.append((alike, separator == ",", len(header), separator))
    return max(found)[-1] if found else otherwise


def _records_of(lines: Sequence[str], separator: str) -> list[list[str]]:
    before = csv.field_size_limit(MAX_CELL_CHARS)
    try:
        records = list(csv.reader((f"{line}\n" for line in lines), delimiter=separator))
    except csv.Error:
        return []
    finally:
        csv.field_size_limit(before)
    if len(lines) == LINES_INSPECTED:
        records = records[:-1]  # it may be incomplete
    return [cells for cells in records if cells]


@cache  # a command reads a file several times
def _log_separator(path: Path, separator: str) -> None:
    log.info("%s: the columns are separated by %s", path, SEPARATORS[separator])


def is_stsb(first_line: str) -> bool:
    """Return whether a file has the columns of the original STS-B files: no header, the score in column 5, the
    sentences in columns 6 and 7, and possibly more columns.
    """
    cells = first_line.split("\t")
    try:
        return len(cells) >= len(STSB) and 0 <= float(cells[STSB.index("score")]) <= 5
    except ValueError:
        return False


def column_names(cells: Sequence[str]) -> list[str]:
    """Return the names in a header without the space and byte-order marks around them, which are invisible."""
    return [cell.strip().strip("\ufeff").strip() for cell in cells]


def bad_header(header: Sequence[str]) -> BadRow | None:
    twice = sorted({name for name in header if name and header.count(name) > 1})  # an unnamed column cannot be selected
    if twice:
        return BadRow(
            f"the header has several columns named {', '.join(map(repr, twice))}. Rename them",
            1,
            ends_file=True,
        )
    return None


def _cells(header: Sequence[str], cells: Sequence[str], line: int) -> ParsedRow | BadRow:
    if not cells:
        return ParsedRow({}, line)
    if len(header) > 1 and header is not STSB and column_names(cells) == header:
        return BadRow("the row repeats the header. Delete it", line)
    if len(cells) != len(header):
        return BadRow(
            f"expected {len(header)} columns as in the header, got {len(cells)}. Quote texts that contain the "
            "separator or a line break, or write the file as .jsonl",
            line,
        )
    return ParsedRow(dict(zip(header, cells, strict=True)), line)
