"""The tables under ``data_root``: their columns, their official number of rows, and what their cells may hold."""

import contextlib
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from files.whole import whole_file, write_whole

FORM = ".senteval"
TEXTS = ("sentence", "sentence1", "sentence2", "premise", "hypothesis", "caption", "title", "text")  # columns

Rows = Iterable[Sequence[str]]


class Table(NamedTuple):
    name: str  # "MR/all", or "MR/all.senteval" for the same rows as SentEval feeds them to an encoder
    columns: tuple[str, ...]
    rows: int | None = None  # official number
    labels: Mapping[str, int | None] = {}  # values of the column ``label`` -> official number of rows with it
    scores: tuple[float, float] | None = None  # least and greatest value of the column ``score``
    empty: int | None = 0  # official number of rows with an empty cell; None: any
    distinct: bool = False  # no text occurs twice
    packed: bool = False  # written as .tsv.gz
    format: str = "tsv"  # or "safetensors": the vectors beside a table
    change: Callable[[str], str] | None = None  # makes each text of the table without ``.senteval`` one of this table

    @property
    def key(self) -> str:
        """Its name, with its ending where another file has the name as well."""
        return self.name if self.format == "tsv" else f"{self.name}.{self.format}"

    def path(self, root: Path) -> Path:
        """Where it lies, packed or not; where it would be written if it is not there."""
        if self.format != "tsv":
            return root / self.key
        plain, packed = root / f"{self.name}.tsv", root / f"{self.name}.tsv.gz"
        if plain.is_file() or packed.is_file():
            return plain if plain.is_file() else packed
        return packed if self.packed else plain


def senteval(table: Table, change: Callable[[str], str]) -> Table:
    """The same rows in the text form of SentEval, which ``change`` makes of a text."""
    return table._replace(name=f"{table.name}{FORM}", change=change)


def write(path: Path, columns: Sequence[str], rows: Rows, official: int | None = None) -> int:
    """Writes header and rows whole or not at all, blanks around cells removed; the number of rows.

    ValueError: a row without the right number of cells, or another number of rows than the official one.
    """
    count = 0
    with whole_file(path) as part, _opened(part, path) as file:
        file.write(_line(columns))
        for row in rows:
            if len(row) != len(columns):
                raise ValueError(f"row {count + 1} has {len(row)} cells instead of {len(columns)}")
            file.write(_line(row))
            count += 1
        if official not in (None, count):
            raise ValueError(f"{count} rows instead of {official}")
    return count


def write_vectors(path: Path, rows: np.ndarray, official: int | None = None) -> int:
    """The vectors of images as a safetensors file; ValueError when there are more or fewer than the official number."""
    from safetensors.numpy import save

    if official not in (None, len(rows)):
        raise ValueError(f"{len(rows)} vectors instead of {official}")
    write_whole(path, save({"images": np.ascontiguousarray(rows)}))
    return len(rows)


@contextlib.contextmanager
def _opened(part: Path, path: Path) -> Iterator[BinaryIO]:
    """The file to write into; what is written is gzipped where the name of the finished one says so."""
    with part.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:  # mtime=0: the same rows give the same bytes
            yield file  # type: ignore[misc]


def _line(cells: Sequence[str]) -> bytes:
    # a tab or line break inside a text would make two cells or rows of it
    return ("\t".join(cell.strip().replace("\t", " ").replace("\n", " ") for cell in cells) + "\n").encode()
