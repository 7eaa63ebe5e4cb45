"""Averaged word vectors (GloVe, fastText), a simple baseline that predates sentence encoders.

The file is text, with one token and D numbers per line, separated by single spaces; fastText files start with a line
"N D". Only vectors of tokens that occur are kept, so that a file of 2.2 million vectors does not take 2.6 GB of memory.
The file is read once for each list of texts with new tokens.
"""

import gzip
import hashlib
import logging
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Unpack, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.loaded_encoder import LoadedEncoder, Options

log = logging.getLogger(__name__)

# Keyed by lower_fallback; part of the cache key, to be increased whenever embeddings change
VERSION = {True: b"word vectors 1", False: b"word vectors 2, as spelled"}
FALLBACK = "mean_lower_fallback"  # the pooling that also looks up the lowercase form of a token
ENDINGS = (".txt", ".vec", ".txt.gz", ".vec.gz")
LINES_TO_CHECK = 100  # the most common width of these lines is used, since a token may contain spaces


class _Shape(NamedTuple):
    width: int
    words: int | None  # from the header


class WordVectors(LoadedEncoder):
    """Encoder that averages the vectors of a text's words; the vectors are read from a file.

    Texts are split at whitespace, so tokenized texts can be passed as they are. Tokens are looked up with their
    original case, as in SentEval's bow example. A text without any known token gets a zero embedding. If a token occurs
    twice in the file, the first line is used.

    Args:
        path: Path of the file.
        lower_fallback: Whether to look up tokens that are missing in the file again in lowercase.
    """

    def __init__(self, path: str | Path, *, lower_fallback: bool = False) -> None:
        self.path, self.lower_fallback = Path(path), lower_fallback
        self._shape = _shape(self.path)
        self.width = self._shape.width
        self.description = {
            "kind": "word vectors",
            "backbone": self.path.name,
            "pooling": FALLBACK if lower_fallback else "mean",
            "prompt": "",
            "max_length": "none",
            "precision": "fp32",
        }
        self._row_of: dict[bytes, int] = {}
        self._vectors = np.zeros((0, self.width), dtype=np.float32)
        self._searched: set[bytes] = set()

    @property
    def fingerprint(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.sha256(VERSION[self.lower_fallback])).hexdigest()

    def embed_list(self, texts: Sequence[str], **_: Unpack[Options]) -> Tensor:
        """Return the embeddings of N texts, (N, width) float32.

        Raises:
            InputError: If a line of the file is damaged.
        """
        words_of = [text.split() for text in texts]
        other = str.lower if self.lower_fallback else str
        forms = {word: (_bytes(word), _bytes(other(word))) for words in words_of for word in words}
        self._read({form for pair in forms.values() for form in pair} - self._searched)
        row_of = {word: self._row_of.get(exact, self._row_of.get(lower)) for word, (exact, lower) in forms.items()}
        rows_of = [[row for word in words if (row := row_of[word]) is not None] for words in words_of]
        found, total = sum(map(len, rows_of)), sum(map(len, words_of))
        share = f"{found} of {total} words in {len(texts)} texts have a vector ({100 * found / max(total, 1):.1f} %)"
        log.log(logging.INFO if found or not total else logging.WARNING, "%s: %s", self.path.name, share)
        if not found:
            return torch.zeros(len(texts), self.width)
        starts = np.cumsum([0, *map(len, rows_of[:-1])])
        flat = torch.tensor([row for rows in rows_of for row in rows])
        return embedding_bag(flat, torch.from_numpy(self._vectors), torch.from_numpy(starts), mode="mean")

    def _read(self, words: set[bytes]) -> None:
        if not words:
            return
        vectors = [self._vectors]
        for word, vector in _matching_lines(self.path, self._shape, words):
            if word not in self._row_of:
                self._row_of[word] = len(self._row_of)
                vectors.append(vector[None])
        self._vectors = np.concatenate(vectors)
        self._searched |= words


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "replace")


def is_word_vector_file(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _matching_lines(path: Path, shape: _Shape, words: set[bytes]) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yield the requested words and their vectors. Of all other lines, check only the number of columns."""
    number = 0
    for number, line in _lines(path, skip=shape.words is not None):
        if line.count(b" ") < shape.width:
            raise _bad(path, number, shape, f"{line.count(b' ') + 1} columns")
        if line[: line.find(b" ")] in words:
            word, *numbers = line.rsplit(b" ", shape.width)
            if word in words:
                yield word, _vector(path, number, shape, numbers)
    read = number - (shape.words is not None)
    if shape.words is not None and read != shape.words:
        raise InputError(
            location=str(path),
            expected=f"{shape.words} words, the number in the file's first line",
            value=max(read, 0),
            hint="The file may be truncated: download it again, or correct the first line.",
        )


def _vector(path: Path, number: int, shape: _Shape, numbers: list[bytes]) -> np.ndarray:
    try:
        vector = np.array([float(column) for column in numbers], dtype=np.float32)
    except ValueError:
        raise _bad(path, number, shape, "a value that is not a number") from None
    if not np.isfinite(vector).all():
        raise _bad(path, number, shape, "a number that is not finite")
    return vector


def _bad(path: Path, number: int, shape: _Shape, got: str) -> InputError:
    return InputError(
        location=f"{path}:{number}",
        expected=f"a word and {shape.width} numbers, separated by single spaces",
        value=got,
        hint="Download the file again, or remove the line.",
    )


def _shape(path: Path) -> _Shape:
    """Return the shape of the vectors in a file, from its header or, if there is no header, from its first lines."""
    first: list[bytes] = []
    for _, line in _lines(path, skip=False):
        first.append(line)
        if len(first) == LINES_TO_CHECK:
            break
    if not first:
        raise InputError(
            location=str(path),
            expected="word vectors as text, with a word and its numbers per line",
            value="an empty file",
        )
    header = first[0].split(b" ")
    if len(header) == 2 and all(column.isdigit() for column in header):
        return _Shape(int(header[1]), int(header[0]))
    columns = Counter(line.count(b" ") for line in first)
    width = max(columns, key=lambda number: (columns[number], number))
    if width < 2:
        number = 1 + [line.count(b" ") for line in first].index(width)
        raise InputError(
            location=f"{path}:{number}",
            expected="word vectors as text, with a word and its numbers per line",
            value=f"{width + 1} columns",
            hint="Use a GloVe .txt or fastText .vec file, or a directory with an encoder.",
        )
    return _Shape(width, None)


def _lines(path: Path, *, skip: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line, starting at 1, and the line without its newline.

    Lines are bytes, because some tokens contain characters that text mode treats as a newline.
    """
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if number > 1 or not skip:
                    yield number, line.rstrip(b" \r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            location=str(path),
            expected=f"a complete gzip file, but reading failed after line {number} ({error})",
            hint="Download it again.",
        ) from error


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
