"""Filter of usable rows, which counts all other rows and describes them in messages."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.raw_documents import RawDocument
from contrastive_encoders.datamodules.sources.row_reading import MAX_SKIPPED, OnError
from contrastive_encoders.io.documents import SOURCE
from contrastive_encoders.io.html_cells import has_tags
from contrastive_encoders.io.nested_columns import MISSING, value_in
from contrastive_encoders.io.rows import text_in
from contrastive_encoders.io.text_files import BadRow, Encoding, ParsedRow

MAX_LISTED = 20  # skipped rows per fault whose place is listed; all are counted
MAX_FILES = 4  # files with unusable rows that a message names
LOOK_AHEAD = 1_000  # rows read after the first unusable one, to check if the rest is usable
NULL_WORDS = frozenset(  # of tables with gaps, and errors of spreadsheets
    "NaN nan NULL null None NA N/A <NA> #N/A #NAME? #REF! #VALUE! #DIV/0! #NUM! #NULL!".split()
)
FAULTS = ("empty", "undecodable", "malformed")


class RowFilter:
    """Filter that yields the usable rows of a source, and counts all other rows.

    ``prefix`` is the prefix of the command's keys in messages.
    """

    def __init__(
        self,
        split: str | None,
        on_error: OnError,
        max_skipped: float = MAX_SKIPPED,
        prefix: str = "data.",
        strip_html: bool = False,
    ) -> None:
        self.split = split  # None: all splits
        self.on_error, self.max_skipped, self.prefix, self.strip_html = on_error, max_skipped, prefix, strip_html
        self.kept = self.with_tags = self.with_null_words = 0
        self.left_out: dict[str, int] = {}
        self.other_splits: dict[str, int] = {}
        self.faults: dict[str, int] = dict.fromkeys(FAULTS, 0)  # of the skipped rows
        self.skipped_where: list[str] = []
        self._first: tuple[str, BadRow] | None = None  # first skipped row, and its file
        self._bad_in: dict[str, int] = {}  # undecodable and malformed rows per file
        self._first_bad = ""  # the first of these rows, with its place
        self._rows_ahead = 0
        self._lacks_column = False  # whether a row without the column of the documents was skipped

    def empty_copy(self) -> "RowFilter":
        """Return a filter with the same options and zero counts."""
        return RowFilter(self.split, self.on_error, self.max_skipped, self.prefix, self.strip_html)

    @property
    def path_key(self) -> str:
        """The config key that contains the paths of the files."""
        return f"{self.prefix}path" if self.prefix else "input"

    @property
    def skipped(self) -> int:
        return sum(self.faults.values())

    def rows(self, rows: Iterable[ParsedRow | BadRow], name: str) -> Iterator[ParsedRow]:
        """Yield the readable rows that belong to the configured split.

        Raises:
            InputError: A row is unreadable and rows are not skipped.
        """
        for row in rows:
            if self._first is not None and self.on_error == "fail":
                self._rows_ahead += 1
                if self._rows_ahead > LOOK_AHEAD:
                    raise self._unusable_row(*self._first)
            if isinstance(row, BadRow):
                self.refuse(row, name)
            elif not row.values:
                self.leave_out("blank")
            elif self.split is None or (split := row.values.get("split")) is None or split == self.split:
                yield row
            else:
                self.other_splits[str(split)] = self.other_splits.get(str(split), 0) + 1

    def documents(
        self, rows: Iterable[ParsedRow | BadRow], name: str, column: str = "text", *, markdown: bool = False
    ) -> Iterator[RawDocument]:
        """Yield a document for each row with text. ``markdown`` adds the Markdown source of
        each text.
        """
        for row in self.rows(rows, name):
            strip_html = self.strip_html and not markdown
            text, where = text_in(row, column, strip_html), f"{name}:{row.line}"
            title = text_in(row, "title", strip_html) if isinstance(row.values.get("title"), str) else ""
            if isinstance(text, BadRow):
                self._lacks_column |= value_in(row.values, column) is MISSING
                self.refuse(text, name)
            elif isinstance(title, BadRow):
                self.refuse(title, name)
            elif not text.strip():
                self.leave_out("blank")
            else:
                self.keep(() if markdown else (text, title))
                yield RawDocument(text, where, title.strip(), row.values[SOURCE] if markdown else "")

    def keep(self, texts: Sequence[str]) -> None:
        """Count a row as used, and also as a row with HTML if any of its texts contains tags that are not removed, or
        as a row with a null word if any of its texts is one.
        """
        self.kept += 1
        self.with_null_words += not NULL_WORDS.isdisjoint(texts)
        self.with_tags += not self.strip_html and any(map(has_tags, texts))

    def leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def refuse(self, row: BadRow, name: str) -> None:
        """Count a row as unusable. If rows are not skipped, a later row or `check` raises the error.

        Raises:
            InputError: The rest of the file cannot be read.
        """
        if row.ends_file:
            raise InputError(f"{name}:{row.line}: {row.message}.", location=f"{name}:{row.line}")
        self.faults[row.fault] += 1
        self._first = self._first or (name, row)
        if row.fault != "empty":
            self._first_bad = self._first_bad or f"{name}:{row.line}: {row.message}"
            self._bad_in[name] = self._bad_in.get(name, 0) + 1
        if self.faults[row.fault] <= MAX_LISTED:
            self.skipped_where.append(f"{name}:{row.line}: {row.message}")

    def check(self, name: str, expected: str) -> None:
        """Check the numbers of used and unusable rows. Call this method after the last row.

        Raises:
            InputError: A row is unusable and rows are not skipped, no row was kept, or too many rows are undecodable or
                malformed.
        """
        if self._first is not None and self.on_error == "fail":
            raise self._unusable_row(*self._first)
        if not self.kept:
            self._refuse_nothing(name, expected)
        share = self._unusable_share()
        if share > self.max_skipped:
            counts = " and ".join(f"{self.faults[fault]:,} {fault}" for fault in FAULTS[1:] if self.faults[fault])
            raise InputError(
                key=f"{self.prefix}max_skipped",
                value=self.max_skipped,
                expected=f"a fraction of at least {share:.3g}, since {counts} of {self._num_rows():,} rows are "
                "unusable",
                hint=f"Correct {self._bad_files()}, or set {self.prefix}max_skipped={round_up(share):g}. The "
                f"first of these rows is {self._first_bad}.",
            )

    def _num_rows(self) -> int:
        return self.kept + self.skipped + sum(self.left_out.values()) - self.left_out.get("blank", 0)

    def _unusable_share(self) -> float:
        """Return the fraction of rows that are undecodable or malformed."""
        return sum(self._bad_in.values()) / max(1, self._num_rows())

    def _unusable_row(self, name: str, row: BadRow) -> InputError:
        """Return the error about an unusable row. The hint is to skip such rows if most rows are usable."""
        share = self._unusable_share()
        limit = f" {self.prefix}max_skipped={round_up(share):g}" if share > self.max_skipped else ""
        hint = self._column_hint()
        if self.kept and share <= 0.5:
            hint = f"To leave out such rows, set {self.prefix}on_error=skip{limit}."
        place = f"{name}:{row.line}"
        return InputError(f"{place}: {row.message}.{f' {hint}' if hint else ''}", location=place, hint=hint)

    def _bad_files(self) -> str:
        """Return the files that have undecodable or malformed rows, with the number of these rows."""
        files = [f"{file} ({number:,} {'row' if number == 1 else 'rows'})" for file, number in self._bad_in.items()]
        more = [f"{len(files) - MAX_FILES} more file(s)"] if len(files) > MAX_FILES else []
        return ", ".join(files[:MAX_FILES] + more)

    def _refuse_nothing(self, name: str, expected: str) -> None:
        got = [f"{number} {reason}" for reason, number in self.left_out.items()]
        got += [f"{number} {fault}" for fault, number in self.faults.items() if number]
        if self.skipped_where:
            got[-1] += f" ({'; '.join(self.skipped_where[:2])})"
        got += [f"{number} with split={split!r}" for split, number in self.other_splits.items()]
        hint = self._column_hint() or "Correct or add rows, or use another file."
        if self.other_splits:
            hint = f"Set {self.prefix}split=NAME to one of them."
        raise InputError(location=name, expected=expected, value=", ".join(got) or "no rows", hint=hint)

    def _column_hint(self) -> str | None:
        """Return the setting of the column of the texts, if rows lack this column."""
        setting = f"{self.prefix}columns=[NAME]" if self.prefix else "input_column=NAME"
        return f"Set {setting}, the column of the texts." if self._lacks_column else None

    def counts(self) -> dict[str, Any]:
        where = {"skipped": self.skipped, **self.faults, "skipped_where": self.skipped_where}
        html = {"html": {"rows": self.kept, "with_tags": self.with_tags}} if self.with_tags else {}
        null_words = {"null_words": self.with_null_words} if self.with_null_words else {}
        return {"other_splits": self.other_splits, **where, **html, **null_words}


def round_up(share: float) -> float:
    """Round a fraction up to two decimals."""
    return math.ceil(100 * share) / 100


def changed_options(row_filter: RowFilter, encoding: Encoding) -> dict[str, Any]:
    """Return the reading options that differ from their defaults, for the fingerprint of the data."""
    return {
        **({} if row_filter.max_skipped == MAX_SKIPPED else {"max_skipped": row_filter.max_skipped}),
        **({} if encoding.name is None else {"encoding": encoding.name}),
        **({"strip_html": True} if row_filter.strip_html else {}),
    }
