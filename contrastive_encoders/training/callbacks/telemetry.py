"""Logging of training metrics and costs, and checks that losses and weights are finite.

The host never waits for the device on a step that is not logged. Counts are stored on the host. The first step with a
NaN loss is stored in a scalar on the device, which is read at log steps and before a checkpoint is written.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from contrastive_encoders.core import InputError, RunCost, StepOutput
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.core.runtime.process_group import group_ranks
from contrastive_encoders.encoders.kernels.compiler import Cost, cost
from contrastive_encoders.encoders.sharding import local_tensor
from contrastive_encoders.io.results import peak_memory_bytes
from contrastive_encoders.training import collectives as agreement
from contrastive_encoders.training.metrics_csv import MetricsCSV

METRICS = "metrics.csv"  # key of its content in a checkpoint
COUNTS = ("examples", "real_tokens", "padded_tokens")
MAX_ROWS_SHOWN = 20
NAN_HINT = "Try a lower model.lr, a longer warmup, or a higher precision than fp16."
MAX_EXACT_INT = 2**53  # no step had a bad loss: larger than every step, and exact in the float64 that ranks exchange


class Telemetry(pl.Callback):
    """Callback that logs training metrics to all loggers of the trainer every ``every_n_steps`` optimizer steps and at
    the last step.

    Modules never call ``self.log``. A training step returns ``core.StepOutput``, whose loss and metrics are averaged
    over ranks here. For a mixture, ``train/loss/PART`` is the mean over the batches of the data source PART since the
    last log step. The values are also in ``trainer.callback_metrics`` (``monitor=train/loss``) and in ``latest``. After
    ``fit``, ``total`` is the cost of the run over all ranks and interruptions. If ``monitor`` is missing from the
    values of a log step, an error is raised. With a ``resumed`` checkpoint, metrics.csv keeps its rows up to that
    checkpoint; otherwise it is started from scratch.
    """

    def __init__(self, *, every_n_steps: int, monitor: str | None = None, resumed: bool = False) -> None:
        self.every_n_steps, self.monitor, self.resumed = every_n_steps, monitor, resumed
        self.latest: dict[str, float] = {}
        self._before = RunCost(
            steps=0, examples=0, real_tokens=0, padded_tokens=0, wall_seconds=0.0, peak_memory_bytes=0
        )  # all ranks, up to the resumed checkpoint
        self.total = self._before
        self._counts = dict.fromkeys(COUNTS, 0)  # this rank, this process
        self._steps = 0  # this process
        self._started = time.monotonic()
        self._window_started: float | None = None
        self._window_counts = dict.fromkeys(COUNTS, 0)
        # for a mixture: losses since the last log step, and steps
        self._parts = dict[str, tuple[Tensor | float, int]]()
        self._compiled_before = Cost(0.0, 0)  # in this process
        self._learning_rate = 0.0
        self._step_seen = 0
        self._first_bad: Tensor | None = None  # () int64, on the device
        self._unchecked: list[tuple[int, np.ndarray]] = []  # rows of the steps since the last check of the losses

    # ------------------------------------------------------------------------------- Lightning's hooks

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Restore the rows of metrics.csv up to the step of the checkpoint, and remove later rows. Lightning calls this
        before ``on_fit_start``, or after it if weights are sharded.
        """
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV):
                own = logger.path.parent.resolve() in Path(str(trainer.ckpt_path)).resolve().parents
                logger.truncate(checkpoint["global_step"], checkpoint.get(METRICS) if own else None)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV) and not self.resumed:
                logger.truncate(-1)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._started, self._compiled_before = time.monotonic(), cost()
        self._step_seen = trainer.global_step
        self._first_bad = torch.tensor(MAX_EXACT_INT, device=pl_module.device)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        cast(Any, pl_module).log_step = self._is_logged(trainer, trainer.global_step + 1)
        # the learning rate of this step: at the end of the batch, the schedule has already advanced
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]
        if self._window_started is None:  # not in on_train_start, where other callbacks may score the untrained encoder
            self._window_started = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the examples and tokens of a batch. After the last batch of a logged step, log the metrics. ``outputs``
        is the `StepOutput` of the batch.
        """
        for name in COUNTS:
            self._counts[name] += outputs["spent"][name]
            self._window_counts[name] += outputs["spent"][name]
        self._watch(outputs["loss"], trainer.global_step, batch)
        if isinstance(part := getattr(batch, "part", None), str):
            losses, steps = self._parts.get(part, (0.0, 0))
            self._parts[part] = losses + outputs["loss"].detach().float(), steps + 1
        if trainer.global_step == self._step_seen:
            return  # more batches are accumulated before the optimizer steps
        self._step_seen = trainer.global_step
        self._steps += 1
        if self._is_logged(trainer, trainer.global_step):
            self._log(trainer, pl_module, outputs)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Check the losses and weights on every rank before a checkpoint is written, so that no bad checkpoint replaces
        a good one.
        """
        self._refuse_bad_losses(pl_module)
        _refuse_bad_weights(pl_module, trainer.global_step)
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV):
                checkpoint[METRICS] = logger.content()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.total = self._spent()

    def state_dict(self) -> dict[str, Any]:
        """Return the costs and the accumulated losses for a checkpoint. Every rank calls this when a checkpoint is
        created; it is a collective operation.
        """
        state: dict[str, Any] = {"spent": dict(self._spent())}
        if self._parts and self._first_bad is not None:
            sums = agreement.total([float(losses) for losses, _ in self._parts.values()])
            of_all = zip(self._parts.items(), sums, strict=True)
            state["parts"] = {name: (losses / group_ranks().world, steps) for (name, (_, steps)), losses in of_all}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = self.total = cast(RunCost, dict(state_dict["spent"]))
        self._parts = {name: (losses, steps) for name, (losses, steps) in state_dict.get("parts", {}).items()}

    # --------------------------------------------------------------------------------------- the totals

    def _spent(self) -> RunCost:
        """Return the cost of the run so far, over all ranks and including the cost before interruptions. This is a
        collective operation.
        """
        examples, real, padded = agreement.total([self._counts[name] for name in COUNTS])
        peak, *compiling = agreement.maximum([peak_memory_bytes(), *self._compiling()])
        running = time.monotonic() - self._started if self._first_bad is not None else 0.0
        return RunCost(
            **self._with_before(Cost(compiling[0], int(compiling[1]))),  # type: ignore[typeddict-item]
            steps=self._before["steps"] + self._steps,
            examples=self._before["examples"] + int(examples),
            real_tokens=self._before["real_tokens"] + int(real),
            padded_tokens=self._before["padded_tokens"] + int(padded),
            wall_seconds=self._before["wall_seconds"] + running,
            peak_memory_bytes=max(self._before["peak_memory_bytes"], int(peak)),
        )

    def _compiling(self) -> Cost:
        """Return the time spent on compiling models since the start of ``fit``, and the number of compiled graphs."""
        now, before = cost(), self._compiled_before
        return Cost(now.seconds - before.seconds, now.graphs - before.graphs)

    def _with_before(self, found: Cost) -> dict[str, float]:
        """Return the total cost of compiling models, including compilations before the run was resumed; empty if
        nothing was compiled.
        """
        seconds = self._before.get("compile_seconds", 0.0) + found.seconds
        graphs = self._before.get("compiled_graphs", 0) + found.graphs
        return {"compile_seconds": seconds, "compiled_graphs": graphs} if graphs else {}

    # -------------------------------------------------------------------------------------- one log step

    def _is_logged(self, trainer: pl.Trainer, step: int) -> bool:
        """Return whether ``step``, to which the current batch belongs, is logged."""
        return step % self.every_n_steps == 0 or is_last_step(trainer, step)

    def _log(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: StepOutput) -> None:
        self._refuse_bad_losses(pl_module)
        of_parts = {f"loss/{name}": torch.as_tensor(losses / steps) for name, (losses, steps) in self._parts.items()}
        self._parts.clear()
        metrics = {"loss": outputs["loss"], **of_parts, **outputs["metrics"]}
        if (norm := getattr(pl_module, "gradient_norm", None)) is not None:
            metrics["gradient_norm"] = norm
        averaged = _means(metrics, pl_module.device, self._window_counts)
        counts = {name: averaged.pop(f"spent/{name}") for name in COUNTS}
        now = time.monotonic()
        seconds = max(now - (self._window_started or self._started), 1e-9)
        tokens = counts["real_tokens"] + counts["padded_tokens"]
        values = {f"train/{name}": value for name, value in averaged.items()} | {
            "train/lr": float(self._learning_rate),
            "throughput/documents_per_s": counts["examples"] / seconds,
            "throughput/real_tokens_per_s": counts["real_tokens"] / seconds,
            "throughput/padding_share": counts["padded_tokens"] / tokens if tokens else 0.0,
            "time/elapsed_s": self._before["wall_seconds"] + now - self._started,
        }
        values |= {f"time/{name}": value for name, value in self._with_before(self._compiling()).items()}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
        # equivalent to log_dict(logger=False), without copying the numbers back to the device
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in values.items()})
        self._refuse_unknown_monitor(values)
        self.latest = values
        self._window_started = now
        self._window_counts = dict.fromkeys(COUNTS, 0)

    def _refuse_unknown_monitor(self, values: Mapping[str, float]) -> None:
        """Check that the logged values contain the monitored metric. The parts of a mixture may be missing from a log
        step.
        """
        monitor, known = self.monitor or "", [name for name in values if name.startswith("train/")]
        if not monitor.startswith("train/") or monitor in known or any("/" in name[6:] for name in known):
            return
        raise InputError(
            key="monitor",
            value=monitor,
            expected=f"a metric of this objective ({', '.join(known)}) or a score of a task in "
            "evaluation.during_training",
        )

    # ----------------------------------------------------------------------------------------- the guard

    def _watch(self, loss: Tensor, step: int, batch: Any) -> None:
        bad_here = torch.where(torch.isfinite(loss.detach()).all(), MAX_EXACT_INT, step)
        self._first_bad = torch.minimum(self._first_bad, bad_here) if self._first_bad is not None else bad_here
        self._unchecked.append((step, batch.rows))

    def _refuse_bad_losses(self, pl_module: pl.LightningModule) -> None:
        """Check that all losses since the last check are finite. This is a collective operation: a bad loss on one rank
        stops all of them.
        """
        if self._first_bad is None:
            return
        bad_here = self._first_bad.item()
        (worst,) = agreement.maximum([-bad_here])
        if -worst >= MAX_EXACT_INT:
            self._unchecked.clear()
            return
        step = int(-worst)
        rows = [rows for seen, rows in self._unchecked if seen == step and bad_here == step]
        raise TrainingError(
            f"The loss of step {step} is NaN or infinite{_row_numbers(rows)}. The last good checkpoint is kept. "
            f"{NAN_HINT} If that does not help, check these rows of the data."
        )


def _means(metrics: Mapping[str, Tensor], device: torch.device, counts: Mapping[str, int]) -> dict[str, float]:
    """Return the mean of each metric and the sum of each count over all ranks, computed with one transfer to the host
    and one small reduction.
    """
    names = sorted(metrics)
    values = torch.stack([metrics[name].detach().to(device=device, dtype=torch.float32) for name in names]).tolist()
    sums = agreement.total([*values, *(float(counts[name]) for name in COUNTS)])
    ranks = group_ranks().world
    means = {name: value / ranks for name, value in zip(names, sums, strict=False)}
    return means | {f"spent/{name}": value for name, value in zip(COUNTS, sums[len(names) :], strict=True)}


def _refuse_bad_weights(pl_module: pl.LightningModule, step: int) -> None:
    """Check that all weights are finite. A gradient can overflow although the loss is finite, and its weights must not
    replace a good checkpoint.
    """
    bad = torch.stack([~torch.isfinite(local_tensor(weight.detach())).all() for weight in pl_module.parameters()])
    if any(found := agreement.maximum(bad.tolist())):
        names = [name for (name, _), is_bad in zip(pl_module.named_parameters(), found, strict=True) if is_bad]
        raise TrainingError(
            f"{len(names)} weights are NaN or infinite after step {step}; the first is {names[0]}. The last good "
            f"checkpoint is kept. {NAN_HINT}"
        )


def is_last_step(trainer: pl.Trainer, step: int | None = None) -> bool:
    """Return whether the current batch is the last one according to the trainer's limits.

    ``step`` is the optimizer step to which the batch belongs. By default, the batch has ended and it is the last step
    that the optimizer made.
    """
    if 0 <= trainer.max_steps <= (trainer.global_step if step is None else step):
        return True
    epochs = trainer.max_epochs
    return trainer.is_last_batch and epochs is not None and 0 <= epochs <= trainer.current_epoch + 1


def _row_numbers(batches: list[np.ndarray]) -> str:
    if not batches:
        return ""
    rows = np.concatenate(batches).tolist()
    shown = ", ".join(str(row) for row in rows[:MAX_ROWS_SHOWN])
    return f" (rows {shown}{', ...' if len(rows) > MAX_ROWS_SHOWN else ''})"
