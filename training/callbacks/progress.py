"""What a person at a terminal sees while training: one live line."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)
from rich.table import Column

from training.callbacks.telemetry import Telemetry

WIDE = 140  # columns of a terminal that has room for what says nothing new


class Progress(pl.Callback):
    """A rich bar on rank 0 of a terminal; silent elsewhere, and when ``quiet``.

    Rates and loss are those of the last log step of ``Telemetry``, so that looking costs no device sync.
    """

    def __init__(self, *, quiet: bool, monitor: str | None, console: Console | None = None) -> None:
        self.quiet = quiet
        self.monitor = monitor
        self._console = console if console is not None else Console(stderr=True)
        self._bar: Bar | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.quiet or not trainer.is_global_zero or not self._console.is_terminal:
            return
        total = trainer.estimated_stepping_batches
        wide = [BarColumn(bar_width=20), TimeElapsedColumn()] if self._console.width >= WIDE else []
        self._bar = Bar(
            TextColumn("step"),
            MofNCompleteColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
            *wide,
            console=self._console,
        )
        self._bar.start()
        steps = None if total == float("inf") else int(total)
        self._bar.add_task("train", total=steps, completed=trainer.global_step, facts="")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=trainer.global_step, facts=self._facts(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        """Give the terminal back, whatever happened."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _facts(self, trainer: pl.Trainer) -> str:
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a connector sets it
        telemetry = next((callback for callback in callbacks if isinstance(callback, Telemetry)), None)
        score = trainer.callback_metrics.get(self.monitor) if self.monitor else None
        return described(telemetry.latest if telemetry is not None else {}, self.monitor, score)


def described(latest: Mapping[str, float], monitor: str | None, score: Any) -> str:
    """``loss 0.412 | stsb-dev spearman 61.20 | 35 docs/s | 9,120 tokens/s | 4 % padding``.

    A narrow terminal cuts the end. Of the monitored score the task and the metric are named.
    """
    facts = [f"loss {latest['train/loss']:.4g}"] if latest else []
    if score is not None and monitor is not None:
        task, _, rest = monitor.partition("/")
        facts.append(f"{task} {rest.rpartition('/')[2]} {float(score):.2f}")
    if latest:
        facts += [
            f"{latest['throughput/documents_per_s']:,.0f} docs/s",
            f"{latest['throughput/real_tokens_per_s']:,.0f} tokens/s",
            f"{latest['throughput/padding_share']:.0%} padding",
        ]
    return " | ".join(facts)
