"""Logger that writes ``metrics.csv`` and loses no rows when a killed run is resumed.

Lightning's own CSV logger deletes the file when a run is resumed. Here the rows after the checkpoint's step are removed
and the others are kept, so that the file of a killed and resumed run equals that of an uninterrupted one.
"""

import csv
import io
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.metrics import Row, parse_rows, read_rows

log = logging.getLogger(__name__)


class MetricsCSV(Logger):
    """Lightning logger that writes a CSV file on rank 0. ``folder`` is the run's output folder."""

    def __init__(self, folder: str | Path, filename: str = "metrics.csv") -> None:
        super().__init__()
        self.path = Path(folder) / filename
        self._names: list[str] = []  # the columns after "step"; empty until the file is read or started
        self._last: Row = {}
        self._last_offset = 0  # bytes before the last row, which is rewritten when its step gets more values
        self._opened = False

    @property
    def name(self) -> str:
        return "csv"

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing; the resolved config is already in the run folder."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add values to the row of ``step``, by default to the last row. A value that is logged twice is replaced."""
        values = {name: _text(value) for name, value in metrics.items() if name != "step"}
        if not values:
            return
        try:
            self._open()
            number = int(self._last.get("step", 0)) if step is None else int(step)
            self._write(number, values)
        except OSError as error:
            raise TrainingError(
                f"Cannot write {self.path}: {error.strerror or error}. Free disk space or correct the permissions, "
                "then rerun the same command to resume from the last checkpoint."
            ) from error

    @rank_zero_only
    def content(self) -> str:
        """Return the content of the file, which checkpoints store so that lost rows can be restored. On ranks other
        than 0, which save no checkpoint, return None.
        """
        return self.path.read_text(encoding="utf-8") if self.path.exists() else ""

    @rank_zero_only
    def truncate(self, step: int, content: str | None = None) -> None:
        """Remove the rows after ``step``, and any row that a killed process left incomplete. ``-1`` empties the file.

        Args:
            content: content of the file when the checkpoint was saved, from which missing rows are restored.
        """
        if not self.path.exists():
            return
        rows = [row for row in read_rows(self.path) if int(row["step"]) <= step]
        saved = [row for row in parse_rows(content or "") if int(row["step"]) <= step]
        if len(rows) < len(saved):
            lost = len(saved) - len(rows)
            log.warning("%s: restored %d missing rows from the checkpoint.", self.path, lost)
            rows = saved
        self._rewrite(rows)
        self._opened = True

    @rank_zero_only
    def save(self) -> None:
        """Flush the rows to the disk. This is called before a checkpoint is saved, which must never be of a later step
        than the file.
        """
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _open(self) -> None:
        if not self._opened:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._rewrite(read_rows(self.path) if self.path.exists() else [])
            self._opened = True

    def _write(self, step: int, values: Row) -> None:
        last_step = int(self._last["step"]) if self._last else -1
        known = values.keys() <= set(self._names)
        if known and step >= last_step:
            row = self._last | values if step == last_step else {"step": str(step)} | values
            self._append(row, replace=step == last_step)
            return
        rows = {int(row["step"]): row for row in read_rows(self.path)}
        rows[step] = rows.get(step, {"step": str(step)}) | values
        self._rewrite([rows[number] for number in sorted(rows)])

    def _append(self, row: Row, replace: bool) -> None:
        with self.path.open("r+b") as file:
            file.seek(self._last_offset) if replace else file.seek(0, os.SEEK_END)
            self._last_offset = file.tell()
            file.write(_lines(["step", *self._names], [row]))
            file.truncate()
        self._last = row

    def _rewrite(self, rows: list[Row]) -> None:
        """Rewrite the file atomically, so that a killed process leaves either the old or the new file."""
        self._names = sorted({name for row in rows for name in row} - {"step"})
        columns = ["step", *self._names]
        head = b"" if not rows else _lines(columns, [dict(zip(columns, columns, strict=True)), *rows[:-1]])
        atomic_write(self.path, head + _lines(columns, rows[-1:]))
        self._last, self._last_offset = (dict(rows[-1]) if rows else {}), len(head)


def _text(value: Any) -> str:
    """Convert a number to the shortest string that parses to the same number."""
    return str(value) if isinstance(value, int) else repr(float(value))


def _lines(columns: list[str], rows: list[Row]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
