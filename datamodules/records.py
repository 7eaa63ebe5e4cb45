"""Examples of one or more texts, with or without a label, out of files: what a row may have wrong is found here."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contracts import InputError
from datamodules.record_files import SUFFIXES, Fields, read_fields
from datamodules.record_kinds import NoExample, RowKind, described, own_columns
from datamodules.sources import MOST_LISTED, identity_of, names_of
from datamodules.text_files import LONGEST_QUOTE, BadRow, TextFile, list_files
from files.manifest import describe_files

log = logging.getLogger(__name__)


class Record(NamedTuple):
    """One example."""

    texts: tuple[str, ...]
    label: float | None  # None where the kind has none
    where: str  # "file:line"


class RecordSource:
    """The rows of a file, of several, or of all files of a folder; of a synthesis output, its shards.

    Rows with a "split" are taken where it says ``split``. ``columns`` names the texts where the names are not ours.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        kind: RowKind,
        *,
        columns: Sequence[str] | None = None,
        split: str = "train",
        on_error: Literal["fail", "skip"] = "fail",
    ) -> None:
        if on_error not in ("fail", "skip"):
            raise InputError(f"data.on_error: wanted fail or skip, got {on_error!r}.")
        paths = [path] if isinstance(path, str | Path) else path
        self.kind = kind if columns is None else kind._replace(columns=(own_columns(columns, kind),))
        self.files = _only_shards(list_files(paths, SUFFIXES))
        self.paths = [str(one) for one in paths]
        self.folders = [folder for folder in map(Path, self.paths) if (folder / "manifest.json").is_file()]
        self.split, self.on_error = split, on_error
        self.width = self._find_width()
        self._restart()

    def _restart(self) -> None:
        self.kept, self.left_out = 0, dict[str, int]()
        self.other_splits = dict[str, int]()
        self.skipped, self.skipped_where = 0, list[str]()

    def __iter__(self) -> Iterator[Record]:
        """The examples in a fixed order; InputError at a row that cannot be one, and where there is none."""
        self._restart()
        for file in self.files:
            for row in self._rows(file):
                if isinstance(row, Record):
                    self.kept += 1
                    yield row
                elif isinstance(row, NoExample):
                    self.left_out[row.reason] = self.left_out.get(row.reason, 0) + 1
        if not self.kept:
            got = ", ".join(f"{number} {reason}" for reason, number in self._counted().items()) or "nothing"
            raise InputError(f"{self.name}: no example in it. Wanted rows of {self.wanted}; got {got}.")

    @property
    def name(self) -> str:
        return names_of(self.files[0], len(self.files))

    @property
    def wanted(self) -> str:
        return described(self.kind)

    def texts(self) -> Iterator[str]:
        return (text for record in self for text in record.texts)

    def fingerprint(self) -> dict[str, Any]:
        """What names the content without reading it; JSON types only."""
        return {
            "kind": self.kind.name,
            "columns": [list(names) for names in self.kind.columns],
            "files": [identity_of(path.resolve(), path.stat()) for path in self.files],
            "split": self.split,
            "on_error": self.on_error,
        }

    def names_split(self) -> bool:
        """Whether a row says that it is of this split; reads until the first that does."""
        rows = (row for file in self.files for row in read_fields(file))
        return any(isinstance(row, Fields) and row.values.get("split") == self.split for row in rows)

    def manifest(self) -> dict[str, Any]:
        """Provenance with sha256, and the counts of the last reading."""
        found = {
            "kind": self.kind.name,
            **describe_files(self.files),
            "split": self.split,
            "rows": self.kept,
            "left_out": self.left_out,
            "other_splits": self.other_splits,
            "skipped": self.skipped,
            "skipped_where": self.skipped_where,
        }
        if self.folders:
            found["synthesis"] = [json.loads((folder / "manifest.json").read_text()) for folder in self.folders]
        return found

    def _rows(self, path: Path) -> Iterator[Record | NoExample]:
        columns: tuple[tuple[str, ...], str | None] | None = None
        for fields in read_fields(path):
            if isinstance(fields, BadRow):
                self._bad(f"{path}:{fields.line}", fields.message)
            elif not fields.values:
                yield NoExample("blank")
            else:
                columns = columns or self._columns(fields.values, f"{path}:{fields.line}")
                row = self._checked(fields, path, *columns)
                if row is not None:
                    yield row

    def _checked(
        self, fields: Fields, path: Path, names: tuple[str, ...], label_name: str | None
    ) -> Record | NoExample | None:
        values, where = fields.values, f"{path}:{fields.line}"
        split = values.get("split")
        if split is not None and split != self.split:
            self.other_splits[str(split)] = self.other_splits.get(str(split), 0) + 1
            return None
        texts = list[str]()
        for name in names:
            text = values.get(name)
            if not isinstance(text, str) or (problem := _unwritable(text)):
                self._bad(where, f"{name} {problem if isinstance(text, str) else _no_text(name, values)}")
                return None
            if not text.strip():
                if self.kind.drop_blank:
                    return NoExample("with an empty text")
                self._bad(where, f"{name} is empty. Give it a text or delete the row")
                return None
            texts.append(text)
        if self.kind.label is None or label_name is None:
            return Record(tuple(texts), None, where)
        value = values.get(label_name)
        try:
            label = self.kind.label.read(value)
        except ValueError as error:
            self._bad(where, f"{label_name} is {_quoted(value)}: {error}. Correct it or delete the row")
            return None
        return label if isinstance(label, NoExample) else Record(tuple(texts), label, where)

    def _columns(self, values: Iterable[str], where: str) -> tuple[tuple[str, ...], str | None]:
        """The names under which this file has the texts and the label."""
        there = list(values)
        labels = self.kind.label.columns if self.kind.label else ()
        names = next((names for names in self.kind.columns if set(names) <= set(there)), None)
        label = next((name for name in labels if name in there), None)
        if names is None or (labels and label is None):
            raise InputError(
                f"{where}: wanted {described(self.kind)}; the columns are {', '.join(map(repr, there))}. Rename "
                "columns in the file, or name those of the texts: data.columns=[...]."
            )
        return names, label

    def _find_width(self) -> int:
        """Texts per row, by the first row of each file that can be read; all files must agree."""
        widths = dict[int, Path]()
        for path in self.files:
            first = next((row for row in read_fields(path) if isinstance(row, Fields) and row.values), None)
            if first is not None:
                widths.setdefault(len(self._columns(first.values, f"{path}:{first.line}")[0]), path)
        if len(widths) > 1:
            (one, first_path), (other, second_path) = list(widths.items())[:2]
            raise InputError(
                f"{second_path}: its rows have {other} texts, those of {first_path} have {one}. Train on them one "
                "after the other, or give them the same columns."
            )
        return next(iter(widths), len(self.kind.columns[0]))

    def _bad(self, where: str, message: str) -> None:
        if self.on_error == "fail":
            raise InputError(f"{where}: {message}. Or go on without such rows: data.on_error=skip.")
        self.skipped += 1
        if len(self.skipped_where) < MOST_LISTED:
            self.skipped_where.append(f"{where}: {message}")

    def _counted(self) -> dict[str, int]:
        counted = dict(self.left_out)
        if self.skipped:
            counted[f"unreadable ({self.skipped_where[0]})"] = self.skipped
        return counted | {f"with split={split!r}": number for split, number in self.other_splits.items()}


def _no_text(name: str, values: dict[str, Any]) -> str:
    if name not in values:
        return f"is missing; the fields are {', '.join(map(repr, values))}. Wanted a text"
    value = values[name]
    return "is null. Wanted a text" if value is None else f"is {_quoted(value)}. Wanted a text"


def _unwritable(text: str) -> str:
    """Why UTF-8 cannot hold it; empty if it can."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # JSON may spell half of a surrogate pair
            return f"holds half a surrogate pair, \\u{ord(text[error.start]):04x}, which is no character"
    return ""


def _quoted(value: object) -> str:
    return "missing" if value is None else repr(value)[:LONGEST_QUOTE]


def _only_shards(files: list[TextFile]) -> list[Path]:
    """Beside and below the shards of a synthesis lie other tables: what was annotated, the x1 that came first."""
    sharded = {file.path.parent for file in files if file.in_folder and file.path.name.startswith("shard-")}

    def belongs(file: TextFile) -> bool:
        outermost = next((folder for folder in reversed(file.path.parents) if folder in sharded), None)
        if not file.in_folder or outermost is None:
            return True
        return file.path.parent == outermost and file.path.name.startswith("shard-")

    return [file.path for file in files if belongs(file)]
