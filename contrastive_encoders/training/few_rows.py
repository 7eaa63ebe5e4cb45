"""Batch size and steps by the number of rows (``few_rows_epochs``)."""

import logging
from dataclasses import replace
from typing import Any

from contrastive_encoders.training.run_config import RunConfig

MIN_ROWS = 1_000  # from so many rows the values of the config hold
MIN_STEPS = 2  # in an epoch of fewer rows
MULTIPLE = 8  # of a batch

log = logging.getLogger(__name__)


def fit_to_rows(run: RunConfig, rows: int) -> RunConfig:
    """Return the run with a batch size and a number of steps for so few rows. What the user has set stays.

    Below 1,000 rows a batch is half of the rows, rounded down to a multiple of 8, at most the size of the config; and
    there are as many steps as ``few_rows_epochs`` take, at most those of the config.
    """
    if run.few_rows_epochs is None or rows >= MIN_ROWS or run.batch_size is None:
        return run
    size, steps = run.batch_size, run.max_steps
    if "batch_size" not in run.asked:
        size = min(size, max(1, rows // MIN_STEPS // MULTIPLE * MULTIPLE or rows // MIN_STEPS))
    if "max_steps" not in run.asked and steps > 0:
        steps = min(steps, max(1, run.few_rows_epochs * rows // size))
    if (size, steps) != (run.batch_size, run.max_steps):
        log.info("batch_size=%d max_steps=%d, since there are %d rows", size, steps, rows)
    return replace(run, batch_size=size, max_steps=steps)


def rows_of(data: Any) -> int:
    """Return the number of examples of a data module whose texts are stored, without settling their length."""
    parts = getattr(data, "parts", None)
    if parts:
        return sum(rows_of(part) for part in parts.values())
    return round(len(data.opened) * data.settings.fraction)
