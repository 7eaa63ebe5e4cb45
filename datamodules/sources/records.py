"""Records of one or more texts with an optional label, read from files and validated."""

import itertools
import logging
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError, check_version
from contrastive_encoders.core.key_suggestions import nearest
from contrastive_encoders.datamodules.sources.hub_datasets import (
    DEFAULT_HUB_KEYS,
    HubKeys,
    HubSet,
    Rows,
    describe_sources,
    file_identity,
    find_rows,
    names_of,
    rows_in,
)
from contrastive_encoders.datamodules.sources.row_filter import LOOK_AHEAD, RowFilter, changed_options
from contrastive_encoders.datamodules.sources.row_reading import MAX_SKIPPED, OnError
from contrastive_encoders.datamodules.sources.row_schemas import (
    RowSchema,
    SkippedRow,
    describe_columns,
    numbered_columns,
    own_columns,
)
from contrastive_encoders.datamodules.sources.text_lists import TextLists, are_lists, read_lists
from contrastive_encoders.io.column_names import choose_columns
from contrastive_encoders.io.file_discovery import local_path
from contrastive_encoders.io.file_formats import form_of
from contrastive_encoders.io.manifest import CorruptFileError, read_record
from contrastive_encoders.io.nested_columns import MISSING, value_in
from contrastive_encoders.io.rows import MAX_QUOTE_CHARS, header_advice, text_in
from contrastive_encoders.io.text_files import BadRow, Encoding, Fault, ParsedRow

LIST_CHECK_ROWS = 50  # rows that are read to find out whether their positives are lists
MAX_NAME_WORDS = 6  # in the name of a column
SENTENCE_ENDS = ("?", ".", "!", "？", "。", "！")
TABLES_OF_TEXTS = (".csv", ".tsv", ".xlsx")  # file types whose values are all strings
LABEL_NAME = re.compile(r"label|scores?\b|relevan|similar|rating|duplicate|gold|correct|helpful|match", re.IGNORECASE)
PLAIN = re.compile(r"(?i:(?!(?:true|false|null|nan|inf)$)[a-z_./][a-z0-9_./-]*)", re.ASCII)  # needs no quotes

log = logging.getLogger(__name__)


@cache  # a command reads a file several times
def _log_labels(name: str, column: str) -> None:
    log.warning(
        "%s: the column %s is not read: each row is a positive pair. Remove the rows that are not, or choose an "
        "objective and data with labels (docs/data.md).",
        *(name, column),
    )


@cache
def _log_lists(name: str) -> None:
    log.info("%s: cells that are spelled as lists are read as lists of texts", name)


class Record(NamedTuple):
    """One example: its texts, its label, and its location in the source."""

    texts: tuple[str, ...]
    label: float | tuple[float, ...] | None  # None if the kind of row has no label
    where: str  # "file:line"
    made_as: str = ""  # kind of pair, if a source makes several pairs of a text
    positives: int = 1  # texts after the first that are positives; "" fills up shorter rows


class RecordSource:
    """Source of rows in files, folders, generated datasets (shards), or datasets on the Hugging Face Hub.

    Of rows with a "split", those of ``split`` are used. ``columns`` names the text columns if their names differ from
    the default names.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        kind: RowSchema,
        *,
        columns: Sequence[str] | None,
        split: str,
        on_error: OnError,
        hub: HubKeys = DEFAULT_HUB_KEYS,
        max_skipped: float = MAX_SKIPPED,
        encoding: str | None = None,
        strip_html: bool = False,
        prefix: str = "data.",
        path_key: str | None = None,
    ) -> None:
        paths = [path] if isinstance(path, str | Path) else path
        self.kind, self.own_columns, self.lists = kind, columns, kind.lists
        if columns is not None:
            self.kind = kind._replace(columns=(own_columns(columns, kind, f"{prefix}columns"),), numbered=(), lists=())
        self.row_filter = RowFilter(split, on_error, max_skipped, prefix, strip_html)
        self.encoding = Encoding(encoding, f"{prefix}encoding")
        path_key = path_key or self.row_filter.path_key
        found = find_rows(paths, split, hub, key=path_key)
        self.files: list[Rows] = [one if isinstance(one, HubSet) else one.path for one in found]
        self.paths = [str(one) for one in paths]
        self.folders = [
            folder
            for folder in (local_path(one, path_key) for one in self.paths)
            if (folder / "manifest.json").is_file()
        ]
        for folder in self.folders:
            self._check_version(folder)
        self.split, self.on_error, self.hub = split, on_error, hub
        self.columns = {file: self._columns(file) for file in self.files}
        self.list_files = {file for file in self.files if self._has_lists(file)}
        self._advice = dict[Rows, str]()
        self.positives = 1  # per row, including ""
        self.width = self._width_of_lists() if self.list_files else self._common_width()

    def __iter__(self) -> Iterator[Record]:
        """Yield the examples in a fixed order.

        Raises:
            InputError: A row is not a valid example, or there are no rows.
        """
        self.row_filter = self.row_filter.empty_copy()
        for file in self.files:
            for row in self.row_filter.rows(self._rows(file), str(file)):
                record = self._record(row, file, *self.columns[file])
                if isinstance(record, Record):
                    self.row_filter.keep(record.texts)
                    yield record
                elif isinstance(record, SkippedRow):
                    self.row_filter.leave_out(record.reason)
                else:
                    self.row_filter.refuse(record, str(file))
        self.row_filter.check(self.name, f"rows of {describe_columns(self.kind)}")

    @property
    def name(self) -> str:
        return names_of(self.files)

    @property
    def other_splits(self) -> dict[str, int]:
        return self.row_filter.other_splits

    def texts(self) -> Iterator[str]:
        return (text for record in self for text in record.texts if text)

    def fingerprint(self) -> dict[str, Any]:
        """Return values that identify the content of the source, without reading it. Contains JSON types only."""
        return {
            "kind": self.kind.name,
            "columns": [list(names) for names in self.kind.columns],
            "files": [file_identity(path) for path in self.files],
            "split": self.split,
            "on_error": self.on_error,
            **changed_options(self.row_filter, self.encoding),
            **({"numbered": self.width} if self._is_numbered() else {}),
            **({"lists": [self.positives, self.width]} if self.list_files else {}),
        }

    def has_split(self, split: str) -> bool:
        """Return whether the hub dataset has this split, or any row belongs to it. Reads up to the first such row."""
        if any(isinstance(file, HubSet) and split in file.splits for file in self.files):
            return True
        rows = (row for file in self.files if isinstance(file, Path) for row in self._rows(file))
        return any(isinstance(row, ParsedRow) and row.values.get("split") == split for row in rows)

    def of_split(
        self, split: str, kind: RowSchema, path: str | Sequence[str] | None = None, path_key: str | None = None
    ) -> "RecordSource":
        """Return a source that reads another split of the same files, or the files at another ``path``, which the
        config key ``path_key`` sets, with the row schema ``kind``.
        """
        return RecordSource(
            path or self.paths,
            kind,
            columns=self.own_columns,
            split=split,
            on_error=self.on_error,
            hub=self.hub,
            max_skipped=self.row_filter.max_skipped,
            encoding=self.encoding.name,
            strip_html=self.row_filter.strip_html,
            prefix=self.row_filter.prefix,
            path_key=path_key if path else None,
        )

    def has_text_labels(self, file: Rows, columns: Sequence[str]) -> bool:
        """Return whether a file has ``columns``, the last of which contains the labels, and all labels are strings.

        The result is always False for .csv, .tsv, and .xlsx files, since all their values are strings.
        """
        names, label = self.columns[file]
        if (*names, label) != tuple(columns) or (isinstance(file, Path) and form_of(file, TABLES_OF_TEXTS)):
            return False
        rows = (row for row in self._rows(file) if isinstance(row, ParsedRow) and row.values)
        return all(isinstance(row.values.get(columns[-1]), str) for row in rows)

    def manifest(self) -> dict[str, Any]:
        """Return the provenance of the rows, with SHA-256 checksums, and the counts of the last reading."""
        found = {
            "kind": self.kind.name,
            **describe_sources(self.files),
            "split": self.split,
            "rows": self.row_filter.kept,
            "left_out": self.row_filter.left_out,
            **self.row_filter.counts(),
        }
        if self.folders:
            found["synthesis"] = [_synthesis(folder / "manifest.json") for folder in self.folders]
        return found

    def _rows(self, file: Rows) -> Iterator[ParsedRow | BadRow]:
        names, label = self.columns[file]
        return rows_in(file, [*names, *([label] if label else []), "split"], self.encoding)

    def _has_lists(self, file: Rows) -> bool:
        """Return whether the positives in a file are lists, according to its column names or its first rows."""
        names, _ = self.columns[file]
        if not self.lists or len(names) not in (2, 3):
            return False
        if names in self.lists:
            return True
        found = (row for row in self._rows(file) if isinstance(row, ParsedRow) and row.values)
        rows = list(itertools.islice(found, LIST_CHECK_ROWS))
        has_lists = any(are_lists(value_in(row.values, name) for row in rows) for name in names[1:])
        if has_lists and isinstance(file, Path) and form_of(file, TABLES_OF_TEXTS):
            _log_lists(str(file))
        return has_lists

    def _width_of_lists(self) -> int:
        """Determine the largest number of positives and the largest number of negatives in any row, and return the
        number of texts to which all rows are filled up.
        """
        if len(self.list_files) < len(self.files):
            other = next(file for file in self.files if file not in self.list_files)
            raise InputError(
                location=str(other),
                expected="rows with a list of positives, as in the other files",
                hint="Train on the files one after the other, or give them the same columns.",
            )
        positives, negatives = 1, 0
        for file in self.files:
            names, _ = self.columns[file]
            for row in self._rows(file) if names else ():
                found = (
                    read_lists(row, names, self.row_filter.strip_html)
                    if isinstance(row, ParsedRow) and row.values
                    else None
                )
                if isinstance(found, TextLists):
                    positives, negatives = max(positives, len(found.positives)), max(negatives, len(found.negatives))
        self.positives = positives
        return 1 + positives + negatives

    def _record_of_lists(self, row: ParsedRow, file: Rows, names: Sequence[str]) -> Record | SkippedRow | BadRow:
        found = read_lists(row, names, self.row_filter.strip_html)
        if not isinstance(found, TextLists):
            return found
        positives = found.positives + [""] * (self.positives - len(found.positives))
        texts = [found.anchor, *positives, *found.negatives]
        texts += [""] * (self.width - len(texts))
        return Record(tuple(texts), None, f"{file}:{row.line}", positives=self.positives)

    def _record(
        self, row: ParsedRow, file: Rows, names: Sequence[str], label_column: str | None
    ) -> Record | SkippedRow | BadRow:
        if file in self.list_files:
            return self._record_of_lists(row, file, names)
        texts = list[str]()
        for name in names:
            text = text_in(row, name, self.row_filter.strip_html)
            if isinstance(text, BadRow):
                is_missing = value_in(row.values, name) is MISSING  # in this row: other rows of the file have it
                return text._replace(fault="empty") if is_missing else text
            if not text.strip():
                if isinstance(file, Path) and form_of(file) == ".txt":
                    return SkippedRow("blank")
                if self.kind.drop_blank:
                    return SkippedRow("with an empty text")
                return BadRow(f"{name} is empty. Fill it or delete the row", row.line, "empty")
            texts.append(text)
        where = f"{file}:{row.line}"
        if self.kind.label is None or label_column is None:
            return Record(tuple(texts), None, where)
        value = row.values.get(label_column)
        try:
            label = self.kind.label.read(value)
        except ValueError as error:
            quoted = "missing" if value is None else repr(value)[:MAX_QUOTE_CHARS]
            fault: Fault = "malformed" if isinstance(value, int | float | list) and value == value else "empty"
            fault = "malformed" if isinstance(value, str) and value.strip() else fault
            advice = self._rescaling(file, label_column)
            return BadRow(f"{label_column} is {quoted}: {error}{advice}. Correct it or delete the row", row.line, fault)
        if isinstance(label, tuple) and len(label) != len(texts) - 1:
            return BadRow(
                f"{label_column} has {len(label)} numbers; expected {len(texts) - 1}, one per text after {names[0]}. "
                "Correct it or delete the row",
                row.line,
            )
        return label if isinstance(label, SkippedRow) else Record(tuple(texts), label, where)

    def _rescaling(self, file: Rows, label_column: str) -> str:
        """Return advice on rescaling labels that are outside the expected range, based on the first labels of the
        file.
        """
        if self.kind.label is None or self.kind.label.rescaling is None:
            return ""
        if file not in self._advice:
            rows = itertools.islice(self._rows(file), LOOK_AHEAD)
            values = [row.values.get(label_column) for row in rows if isinstance(row, ParsedRow)]
            self._advice[file] = self.kind.label.rescaling(values)
        return self._advice[file]

    def _columns(self, file: Rows) -> tuple[tuple[str, ...], str | None]:
        """Return the column names of the texts and the label in this file, based on its first readable row or, in JSON
        files, on the first rows that together have them. Both are empty if there is no row; the reader then raises the
        error.
        """
        rows = (row for row in rows_in(file, encoding=self.encoding) if isinstance(row, ParsedRow) and row.values)
        first = next(rows, None)
        if first is None:
            return (), None
        labels = self.kind.label.columns if self.kind.label else ()
        may_lack = isinstance(file, Path) and form_of(file) in (".jsonl", ".json")
        present, names, label = list[str](), None, None
        for row in itertools.chain([first], itertools.islice(rows, LOOK_AHEAD) if may_lack else ()):
            present += [name for name in row.values if name not in present]
            names = numbered_columns(self.kind, present) or choose_columns(
                present, (*self.kind.columns, *self.kind.lists)
            )
            label = next((name for name in labels if name in present), None)
            if names is not None and (label is not None or not labels):
                break
        if names is None or (labels and label is None):
            shown = ", ".join(repr(name[:MAX_QUOTE_CHARS]) for name in present)
            has_header = isinstance(file, Path) and form_of(file, TABLES_OF_TEXTS) != ""
            hint = self._header_hint(present, has_header)
            hint += self._columns_hint(present) if names is None else self._label_hint(names, present)
            raise InputError(
                location=str(file) if has_header else f"{file}:{first.line}",
                expected=f"the columns {describe_columns(self.kind)}",
                value=f"the column {shown}" if len(present) == 1 else f"the columns {shown}",
                hint=header_advice(file, self.encoding, hint) if isinstance(file, Path) else hint,
            )
        if len(names) == 2 and names in self.kind.columns and not labels:
            self._warn_of_labels(file, [name for name in present if LABEL_NAME.search(name) and name not in names])
        return names, label

    def _warn_of_labels(self, file: Rows, columns: Sequence[str]) -> None:
        """Warn if the pairs of a file have different labels in one of the columns, which are not read, so that each row
        is learned as a positive pair.
        """
        rows = itertools.islice(rows_in(file, encoding=self.encoding) if columns else (), LOOK_AHEAD)
        values = [row.values for row in rows if isinstance(row, ParsedRow)]
        values = [one for one in values if one.get("split", self.split) == self.split]
        for name in columns:
            if len({str(one.get(name)) for one in values}) > 1:
                _log_labels(str(file), name)

    def _check_version(self, folder: Path) -> None:
        """Raise `InputError` if another version of the project wrote the dataset."""
        found = _synthesis(folder / "manifest.json")
        if {"identity", "shards_planned"} <= found.keys():  # written by this project; others may use this name
            own = [file for file in self.files if isinstance(file, Path) and file.parent == folder]
            rows = own[0] if len(own) == 1 else folder / f"*{own[0].suffix if own else ''}"
            key = self.row_filter.path_key
            hint = f"Generate it again, or set {shlex.quote(f'{key}={rows}')} to read its rows nevertheless."
            check_version(found.get("version"), "a data set", key=key, value=folder, hint=hint)

    def _header_hint(self, present: Sequence[str], has_header: bool) -> str:
        """Return a hint for a table whose first line seems to be a row, because its cells are sentences."""
        if not has_header or not any(map(_is_sentence, present)):
            return ""
        names = " and ".join(self.kind.columns[0])
        return f"If the first line is a row, add a line above it with the names of the columns, such as {names}. "

    def _columns_hint(self, present: Sequence[str]) -> str:
        """Return a hint that says how to set ``columns``, or what to do if the table has too few columns."""
        key = f"{self.row_filter.prefix}columns"
        needed, short = self.kind.columns[0], max(map(len, present)) <= MAX_QUOTE_CHARS
        similar = [_similar_column(name, present) for name in self.own_columns or ()]
        if similar and short and all(similar) and len(set(similar)) == len(similar):
            return f"Set {list_setting(key, [str(name) for name in similar])}."
        if len(present) < min(map(len, self.kind.columns)):
            hint = f"{len(needed)} text columns are needed, separated by commas, semicolons, tabs, or bars."
            setting = f" {list_setting(key, present)}" if short else ""
            advice = (
                f" To train on the texts of one column, set model=simcse model.dropout=0.1 data=sentences{setting}."
            )
            return f"{hint}{advice if self.row_filter.prefix else ''}"
        word = list_setting(key, present) if short and len(present) == len(needed) else f"{key}=[...]"
        order = "" if self.own_columns else f", in the order {', '.join(needed)}"
        label = self.kind.label is not None and len(present) == len(needed)
        add = f" {self._label_hint(present, present)}" if label else ""
        return f"Name the text columns{order}: {word}; OUTER.INNER for nested values.{add}"

    def _label_hint(self, names: Sequence[str], present: Sequence[str]) -> str:
        assert self.kind.label is not None
        expected = " or ".join(self.kind.label.columns)
        others = [name for name in present if name not in names]
        return f"Rename the label column to {expected}." if others else f"Add a label column named {expected}."

    def _is_numbered(self) -> bool:
        known = (*self.kind.columns, *self.kind.lists)
        return any(names and names not in known for names, _ in self.columns.values())

    def _common_width(self) -> int:
        """Return the number of texts per row, which must be the same in all files."""
        widths: dict[int, Rows] = {}
        for file, (names, _) in self.columns.items():
            if names:
                widths.setdefault(len(names), file)
        if len(widths) > 1:
            (one, first_path), (other, second_path) = list(widths.items())[:2]
            raise InputError(
                location=str(second_path),
                expected=f"{one} texts per row, as in {first_path}",
                value=other,
                hint="Train on the files one after the other, or give them the same columns.",
            )
        return next(iter(widths), len(self.kind.columns[0]))


def _similar_column(name: str, present: Sequence[str]) -> str | None:
    """Return the column of this name, else the only one that begins with it, else the most similar one, if any."""
    if name in present:
        return name
    longer = [one for one in present if one.lower().startswith(name.lower())]
    return longer[0] if len(longer) == 1 else None if longer else nearest(name, present)


def _is_sentence(name: str) -> bool:
    """Return whether the name of a column seems to be a text of the first row, because the file has no header."""
    return len(name.split()) > MAX_NAME_WORDS or name.rstrip().endswith(SENTENCE_ENDS)


def _synthesis(manifest: Path) -> dict[str, Any]:
    try:
        return read_record(manifest)
    except CorruptFileError as error:
        raise InputError(
            location=str(manifest),
            expected=f"a readable manifest ({error})",
            hint="Rerun the command that wrote the manifest.",
        ) from error


def list_setting(key: str, values: Sequence[str]) -> str:
    """Return the setting ``KEY=[VALUE,...]``, with quotes around values that a shell or Hydra would otherwise
    interpret.
    """
    if all(PLAIN.fullmatch(value) for value in values):
        return f"{key}=[{','.join(values)}]"
    quoted = (re.sub(r'(\\*)"', r'\1\1\\"', re.sub(r"(\\+)$", r"\1\1", value)) for value in values)
    return shlex.quote(f"{key}=[" + ",".join(f'"{value}"' for value in quoted) + "]")
