"""The texts to embed: streamed from files in their order, or in memory."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.core import InputError
from contrastive_encoders.io.file_discovery import list_files
from contrastive_encoders.io.file_formats import has_columns
from contrastive_encoders.io.rows import count_rows, read_windows
from contrastive_encoders.io.text_files import AUTO, Encoding

COLUMN = "text"
ADVICE = " Set column to the column of the texts, or correct the row."


class InputTexts(NamedTuple):
    """Texts from files. In a .txt file, each line is a text, even if it is blank. In files of other formats, each
    non-blank row is a text.
    """

    files: tuple[Path, ...]
    column: str | None  # None: all files contain lines
    encoding: Encoding = AUTO

    @property
    def name(self) -> str:
        """Return a description that identifies the files: their names, sizes, and times of modification."""
        stats = [(path.name, path.stat()) for path in self.files]
        return "; ".join(f"{name}, {stat.st_size} bytes of {stat.st_mtime_ns}" for name, stat in stats)

    def rows(self) -> int:
        """Return the number of texts. Only the first text of each file is decoded.

        Raises:
            InputError: a file cannot be read, or has no such column.
        """
        for path in self.files:
            next(read_windows([path], self.column or COLUMN, 1, lambda _: True, ADVICE, self.encoding), None)
        return count_rows(self.files, [self.column or COLUMN], self.encoding)

    def windows(self, size: int, is_needed: Callable[[int], bool]) -> Iterator[tuple[int, list[str]]]:
        """Yield (number, texts) of each window of ``size`` rows for which ``is_needed(number)`` is true.

        Raises:
            InputError: a row is not text; the message names the row.
        """
        return read_windows(self.files, self.column or COLUMN, size, is_needed, ADVICE, self.encoding)


class ListedTexts(NamedTuple):
    """Texts in memory, including empty texts, with the interface of `InputTexts`."""

    texts: tuple[str, ...]
    column: None = None

    @property
    def name(self) -> str:
        """Return a description that identifies the texts: their number and a hash."""
        digest = hashlib.sha256("".join(f"{len(text)} {text}" for text in self.texts).encode()).hexdigest()
        return f"{len(self.texts)} texts, sha256 {digest[:16]}"

    def rows(self) -> int:
        return len(self.texts)

    def windows(self, size: int, is_needed: Callable[[int], bool]) -> Iterator[tuple[int, list[str]]]:
        """Yield (number, texts) of each window of ``size`` texts for which ``is_needed(number)`` is true."""
        for number, start in enumerate(range(0, len(self.texts), size)):
            if is_needed(number):
                yield number, list(self.texts[start : start + size])


def open_texts(path: str | Sequence[str], column: str | None, encoding: Encoding = AUTO) -> InputTexts:
    """Return the texts in files, which are given by a path, a folder, a pattern, or a list of these.

    Raises:
        InputError: a file does not exist, or a column is given for files of lines.
    """
    files = tuple(
        file.path for file in list_files(path if isinstance(path, str) else list(path), "input", documents="named")
    )
    if any(map(has_columns, files)):
        return InputTexts(files, column or COLUMN, encoding)
    if column is not None:
        expected = "null for text files and documents, which have no columns"
        raise InputError(key="column", value=column, expected=expected)
    return InputTexts(files, None, encoding)
