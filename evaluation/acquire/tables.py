"""The tables under ``data_root``: their columns, their official number of rows, and what their cells may hold."""

import gzip
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

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
    with Whole(path) as file:
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
    with Whole(path) as file:
        file.write(save({"images": np.ascontiguousarray(rows)}))
    return len(rows)


class Whole:
    """A file that appears under its name only when the block around it ended well; gzipped where the name says so."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        self._part = Path(name)
        self._raw = os.fdopen(handle, "wb")
        # mtime=0: the same rows give the same bytes
        self._file = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0) if self.path.suffix == ".gz" else self._raw
        return self._file  # type: ignore[return-value]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not self._raw:
            self._file.close()
        self._raw.close()
        if kind is None:
            self._part.chmod(0o644)
            self._part.replace(self.path)
        else:
            self._part.unlink()


def _line(cells: Sequence[str]) -> bytes:
    # a tab or line break inside a text would make two cells or rows of it
    return ("\t".join(cell.strip().replace("\t", " ").replace("\n", " ") for cell in cells) + "\n").encode()
