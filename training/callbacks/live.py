"""Keeps ``curve.html`` of a run up to date; on rank 0 alone, and without waiting for a device."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from evaluation.callback import ScoreCallback
from training.callbacks.telemetry import Telemetry
from training.curve import Reference
from training.live_page import PAGE, LivePage, State

BETWEEN = 60.0  # seconds at least between two pages where nothing is scored

log = logging.getLogger(__name__)


class Live(pl.Callback):
    """Rewrites the page at each score, and at log steps a minute apart; what keeps it from that is told once.

    ``skip()``: the run was cut short. `finish` is for who writes the results.
    """

    def __init__(self, page: LivePage, scorer: ScoreCallback, telemetry: Telemetry, skip: Callable[[], bool]) -> None:
        self.page, self.scorer, self.telemetry, self.skip = page, scorer, telemetry, skip
        self._written, self._every = 0.0, 0.0
        self._seen: tuple[int, Any] = (0, None)  # what was logged and scored when the page was written
        self._began = self._before = 0.0  # this clock, and the seconds of earlier processes
        self._first_step = 0
        self._steps: int | None = None
        self._state = State("", 0, None, 0.0, None)
        self._on = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._began, self._before = time.monotonic(), self.telemetry.total["wall_seconds"]
        self._first_step, total = trainer.global_step, trainer.estimated_stepping_batches
        self._steps = int(total) if total != float("inf") else None
        self._write("Training.", trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        scored, logged = self._now()
        if self._seen != (scored, logged) and (self._seen[0] != scored or time.monotonic() - self._written > BETWEEN):
            self._write("Training.", trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        cut = "Stopped; the same command continues it."
        self._write(cut if self.skip() else "Trained; the best weights are being scored.", trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._write("Ended by an error; the same command continues from the last checkpoint.", trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self._began:  # it goes on from its last step: nothing is left but to score and to write
            self._state = self._state._replace(step=trainer.global_step, steps=trainer.global_step)

    def finish(self, against: Reference) -> None:
        """The last page, which does not reload any more."""
        elapsed = self.telemetry.total["wall_seconds"]
        state = self._state._replace(words="Finished.", elapsed=elapsed, left=None, finished=True)
        self._put(state, against)

    def _now(self) -> tuple[int, Any]:
        return len(self.scorer.history), self.telemetry.latest.get("time/elapsed_s")

    def _write(self, words: str, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero or not self._began:
            return
        now, step = time.monotonic(), trainer.global_step
        running, done = now - self._began, step - self._first_step
        left = running / done * (self._steps - step) if done and self._steps else None
        for timer in (one for one in trainer.callbacks if isinstance(one, Timer)):  # type: ignore[attr-defined]
            limit = timer.time_remaining()
            left = limit if left is None else left if limit is None else min(left, limit)
        left = left if left is None else max(0.0, left)  # a clock that has run out says less
        self._state = State(words, step, self._steps, self._before + running, left)
        self._every = now - self._written if self._written else 0.0
        self._written, self._seen = now, self._now()
        self._put(self._state, Reference(before=self.scorer.scores_before or {}))

    def _put(self, state: State, against: Reference) -> None:
        if not self._on:
            return
        try:
            self.page.write(state, against, self.scorer.neighbours, self._every / 2)
        except (OSError, RuntimeError, ValueError) as error:  # the last: metrics.csv was edited by hand
            self._on = False
            log.warning("%s is not written any more: %s", self.page.folder / PAGE, error)
