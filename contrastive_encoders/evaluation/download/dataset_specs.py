"""Specification of a data set: its tables, license, and download locations."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contrastive_encoders.evaluation.tables import table
from contrastive_encoders.io.archives import InvalidArchiveError, Members
from contrastive_encoders.io.download import File

FORM = ".senteval"
TEXTS = ("sentence", "sentence1", "sentence2", "premise", "hypothesis", "caption", "title", "text")  # columns
SIMCSE = "senteval.tar of SimCSE"

Rows = Iterable[Sequence[str]]
Maker = Callable[[Members], Rows | np.ndarray]  # an array is (vectors, width)


class TableSpec(NamedTuple):
    """A table under ``data_root``: its columns, its official number of rows, and the allowed values of its cells."""

    name: str  # "MR/all", or "MR/all.senteval" for the same rows in the form that SentEval passes to an encoder
    columns: tuple[str, ...]
    rows: int | None = None  # official number
    labels: Mapping[str, int | None] = {}  # values of the column ``label`` -> official number of rows with it
    scores: tuple[float, float] | None = None  # minimum and maximum of the column ``score``
    empty: int | None = 0  # official number of rows with an empty cell; None: any
    distinct: bool = False  # whether all texts are different
    packed: bool = False  # written as .tsv.gz
    format: str = "tsv"  # or "safetensors": the embeddings next to a table
    change: Callable[[str], str] | None = None  # function that converts a text of the table without ``.senteval``

    @property
    def key(self) -> str:
        """Return the unique key of the table: its name, with the file ending if it is not a .tsv file."""
        return self.name if self.format == "tsv" else f"{self.name}.{self.format}"

    def path(self, root: Path) -> Path:
        """Return the path of the table: the existing file, compressed or not, or, if there is none, the file to be
        written.
        """
        if self.format != "tsv":
            return root / self.key
        path = table(root, self.name)
        return path.with_name(f"{path.name}.gz") if self.packed and not path.is_file() else path


class DownloadLocation(NamedTuple):
    """A download location with some or all tables of a data set."""

    name: str
    files: tuple[File, ...]
    tables: Mapping[str, Maker]  # table's key -> function that makes its rows from the files' members


class DatasetSpec(NamedTuple):
    """A data set, for example ``STS12``."""

    name: str
    license: str
    tables: tuple[TableSpec, ...]
    places: tuple[DownloadLocation, ...]
    note: str = ""  # note in the listing


def labeled(name: str, columns: str, labels: Mapping[str, int | None], **more: object) -> TableSpec:
    """Return the specification of a labeled table, given the number of rows for each label."""
    count = sum(rows or 0 for rows in labels.values())
    return TableSpec(name, tuple(columns.split()), count, labels)._replace(**more)  # type: ignore[arg-type]


def senteval(table: TableSpec, change: Callable[[str], str]) -> TableSpec:
    """Return the specification of the table with SentEval's tokenized texts, which ``change`` computes from the raw
    texts.
    """
    return table._replace(name=f"{table.name}{FORM}", change=change)


def file_from_url(url: str) -> File:
    """Return a file to download, named after the last component of its URL."""
    return File(url.rsplit("/", 1)[-1], url)


def github(repository: str, commit: str, path: str, name: str | None = None) -> File:
    """Return a file to download from a GitHub repository at a commit or branch."""
    file = file_from_url(f"https://raw.githubusercontent.com/{repository}/{commit}/{path}")
    return file._replace(name=name or file.name)


def simcse(tables: Mapping[str, Maker]) -> DownloadLocation:
    """Return the location of SimCSE's archive, which contains all data sets as preprocessed by SentEval's script (STS
    in lowercase).
    """
    hub = "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/main"
    return DownloadLocation(SIMCSE, (file_from_url(f"{hub}/senteval.tar"),), tables)


def normalize_number(cell: str) -> str:
    """Remove trailing zeros from a number: 4.400 -> 4.4, 5.000 -> 5."""
    try:
        return f"{float(cell):.6g}"
    except ValueError:
        raise InvalidArchiveError(f"a score is {cell!r}, expected a number") from None


def cells(lines: Sequence[str], minimum: int, name: str) -> Iterator[list[str]]:
    """Yield the tab-separated cells of each line. Raise InvalidArchiveError if there are fewer than ``minimum``."""
    for number, line in enumerate(lines, start=1):
        row = line.split("\t")
        if len(row) < minimum:
            raise InvalidArchiveError(f"{name}, line {number}: {len(row)} tab-separated cells, expected {minimum}")
        yield row


def select_columns(name: str, order: Sequence[int], members: Members, *, header: bool = False, score: int = -1) -> Rows:
    """Yield the columns ``order`` of each line of a file; numbers in the column ``score`` are normalized."""
    for row in islice(cells(members.lines(name), max(order) + 1, name), int(header), None):
        yield [normalize_number(row[column]) if column == score else row[column] for column in order]
