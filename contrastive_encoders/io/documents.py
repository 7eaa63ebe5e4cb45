"""Read files that contain one document each: Markdown directly, and HTML, PDF, Word, and Excel with markitdown."""

import hashlib
import io
import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from contrastive_encoders.core import missing_package
from contrastive_encoders.io.file_formats import DOCUMENTS, MARKDOWN, form_of
from contrastive_encoders.io.markdown import plain_text
from contrastive_encoders.io.text_files import (
    AUTO,
    EMPTY,
    LINE,
    UNREADABLE,
    BadRow,
    Encoding,
    Lines,
    ParsedRow,
    Piece,
    decode_utf8,
    describe_read_error,
    open_decompressed,
    open_text,
)

if TYPE_CHECKING:
    from markitdown import MarkItDown

SOURCE = "markdown"  # the name of the value from which a document is made
# heading of a sheet with the name that spreadsheet programs give it
DEFAULT_SHEET = re.compile(r"^## (?:Sheet|Tabelle|Feuil|Hoja|Foglio|Planilha|Blad|Arkusz) ?\d+[^\S\n]*$", re.MULTILINE)
MAX_CACHED = 2_000  # converted documents that are kept, because preparing a run reads each document several times
MAX_CACHED_CHARACTERS = 100_000  # of such a document
EMPTY_CELL = re.compile(r"(?<=\| )(?:NaN|Unnamed: \d+)(?= \|)")  # as pandas writes the empty cells of a sheet

_converted: dict[tuple[str, bytes], str] = {}  # form and hash of a file -> its Markdown


class DocumentReader(Lines):
    """Reader that returns a document as a single row with two values: its Markdown source and its visible text."""

    def pieces(self) -> Iterator[Piece | BadRow]:
        yield 1, None

    def row(self, line: int, piece: object) -> ParsedRow | BadRow:
        text = markdown_of(self.path, self.encoding)
        return text if isinstance(text, BadRow) else ParsedRow({LINE: plain_text(text), SOURCE: text}, line)


def markdown_of(path: Path, encoding: Encoding = AUTO) -> str | BadRow:
    """Return a document as Markdown, or a description of the error if its file cannot be read.

    Raises:
        InputError: it is not Markdown, and markitdown is not installed.
    """
    form = form_of(path, DOCUMENTS)
    try:
        with open_text(path, encoding) if form in MARKDOWN else open_decompressed(path) as stream:
            data = stream.read()
    except UNREADABLE as error:
        return describe_read_error(error, 1)
    if not data:
        return BadRow(EMPTY, 1, "empty")
    if form not in MARKDOWN:
        key = form, hashlib.sha256(data).digest()
        converted = _converted[key] if key in _converted else _convert(data, path, form)
        if isinstance(converted, str) and len(converted) <= MAX_CACHED_CHARACTERS and len(_converted) < MAX_CACHED:
            _converted[key] = converted
        return converted
    text = decode_utf8(data, 1, encoding, "file")
    return text if isinstance(text, BadRow) else text.replace("\r\n", "\n").replace("\r", "\n")


def _convert(data: bytes, path: Path, form: str) -> str | BadRow:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime, which markitdown imports, writes a file .ses
    try:
        from markitdown import MarkItDownException, StreamInfo
    except ImportError as error:
        raise missing_package(str(error.name), "documents", location=str(path)) from error
    try:
        found: str = _converter().convert_stream(io.BytesIO(data), stream_info=StreamInfo(extension=form)).markdown
    except MarkItDownException as error:
        cause = next((one.exc_info[1] for one in getattr(error, "attempts", None) or () if one.exc_info), error)
        why = " ".join(f"{type(cause).__name__}: {cause}".split()).removesuffix(".")
        return BadRow(f"not a valid {form} file ({why}). Open and save it again, or leave it out", 1)
    return DEFAULT_SHEET.sub("", EMPTY_CELL.sub("", found)) if form == ".xlsx" else found


@cache
def _converter() -> "MarkItDown":
    """Return a markitdown converter for HTML, PDF, Word, and Excel only, because its other converters would follow
    links or start programs.
    """
    from markitdown import MarkItDown
    from markitdown.converters import DocxConverter, HtmlConverter, PdfConverter, XlsxConverter

    logging.getLogger("pdfminer").setLevel(logging.ERROR)  # it warns of every color that it does not know
    converter = MarkItDown(enable_builtins=False, enable_plugins=False)
    for one in (HtmlConverter(), PdfConverter(), DocxConverter(), XlsxConverter()):
        converter.register_converter(one)
    return converter
