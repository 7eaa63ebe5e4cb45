"""Display of training progress: a live line on a terminal, otherwise log lines."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column

from contrastive_encoders.core.progress import clock
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.training.callbacks.telemetry import Telemetry

WIDE = 140  # columns of a terminal that is wide enough to repeat known values

log = logging.getLogger(__name__)


class TrainingProgress(pl.Callback):
    """Callback that shows the progress of training: a live line on rank 0 if stderr is a terminal, otherwise one log
    line per log step. It shows nothing if ``quiet``.

    Rates and loss are those of the last log step of ``Telemetry``, so that no device synchronization is needed. The
    remaining time is estimated from the total time that this process has spent since training began, including scoring.
    """

    def __init__(self, *, quiet: bool, monitor: str | None, console: Console | None = None) -> None:
        self.quiet = quiet
        self.monitor = monitor
        self._console = console if console is not None else Console(stderr=True)
        self._bar: Bar | None = None
        self._total: int | None = None
        self._began, self._first = 0.0, 0
        self._logged: Mapping[str, float] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        total = trainer.estimated_stepping_batches
        self._total = None if total == float("inf") else int(total)
        self._began, self._first = time.monotonic(), trainer.global_step
        watched = self._console.is_terminal and not self._console.is_jupyter
        if self.quiet or not trainer.is_global_zero or not watched:
            return
        wide = [BarColumn(bar_width=20), TimeElapsedColumn()] if self._console.width >= WIDE else []
        facts = TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._bar = Bar(facts, *wide, console=self._console)
        self._bar.start()
        self._bar.add_task("train", total=self._total, completed=trainer.global_step, facts=self._facts(trainer, {}))

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a connector sets it
        telemetry = next((callback for callback in callbacks if isinstance(callback, Telemetry)), None)
        latest = telemetry.latest if telemetry is not None else {}
        if self._bar is not None:
            facts = self._facts(trainer, latest)
            self._bar.update(self._bar.task_ids[0], completed=trainer.global_step, facts=facts)
        elif latest is not self._logged and latest and not self.quiet:
            self._logged = latest
            log.info("%s", self._facts(trainer, latest))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        """Stop the live line, which restores the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _facts(self, trainer: pl.Trainer, latest: Mapping[str, float]) -> str:
        step, score = trainer.global_step, trainer.callback_metrics.get(self.monitor) if self.monitor else None
        seconds_left = None
        if self._total is not None and step > self._first:
            seconds_left = (time.monotonic() - self._began) / (step - self._first) * (self._total - step)
        return described(step, self._total, latest, self.monitor, score, seconds_left)


def described(
    step: int,
    total: int | None,
    latest: Mapping[str, float],
    monitor: str | None,
    score: Any,
    seconds_left: float | None,
) -> str:
    """Format the progress: ``step 20/40 loss 0.412 stsb-dev spearman 61.20 35 ex/s 0:01:10 left 9,120 tokens/s 4%
    padding``.

    A narrow terminal truncates the end; 80 columns show the values before the tokens. The monitored score is shown with
    its task and metric, and the rates are those of examples and real tokens.
    """
    facts = [f"step {step}" if total is None else f"step {step}/{total}"]
    facts += [f"loss {latest['train/loss']:.3g}"] if latest else []
    if score is not None and monitor is not None and monitor not in latest:
        name = ScoreName.parse(monitor)
        facts.append(f"{name.full_task} {name.metric} {float(score):.2f}")
    facts += [f"{latest['throughput/documents_per_s']:,.0f} ex/s"] if latest else []
    facts += [] if seconds_left is None else [f"{clock(seconds_left)} left"]
    facts += [f"{latest['throughput/real_tokens_per_s']:,.0f} tokens/s"] if latest else []
    if padding := latest.get("throughput/padding_share"):  # none for packed sequences
        facts.append(f"{padding:.0%} padding")
    return "  ".join(facts)
