"""Training of one model with Lightning: callbacks, loggers, scoring during training, and weight averaging."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import hydra
import pytorch_lightning as pl

from contrastive_encoders.core import ResumedSettings
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.encoders.lora import dequantize_frozen_layers
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.sharding import load_weights
from contrastive_encoders.evaluation.callback import FinalScores, ScoreCallback, Suites
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.training.build import make_model, make_trainer
from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints
from contrastive_encoders.training.callbacks.config_record import ConfigRecord
from contrastive_encoders.training.callbacks.estimate import RunEstimate
from contrastive_encoders.training.callbacks.freed_memory import FreedMemoryReuse
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption
from contrastive_encoders.training.callbacks.progress import TrainingProgress
from contrastive_encoders.training.callbacks.rank_failures import RankFailureMonitor
from contrastive_encoders.training.callbacks.reseed import Reseed
from contrastive_encoders.training.callbacks.telemetry import Telemetry, is_last_step
from contrastive_encoders.training.metrics_csv import MetricsCSV
from contrastive_encoders.training.neighbor_batches import grouped_rows
from contrastive_encoders.training.prepare import PreparedRun, set_up_data
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.resume import resumption
from contrastive_encoders.training.startup_summary import WIDTH, facts
from contrastive_encoders.training.weight_average import average_with, copy_of_weights

log = logging.getLogger(__name__)

LESS_IS_BETTER = (
    *("train/loss", "train/mlm", "train/contrastive", "train/generation_loss", "train/discrimination_loss"),
    *("train/alignment", "train/uniformity", "train/distance_to_teacher", "generator-dev/perplexity"),
)
FOLDERS = ("save_dir", "output_dir")  # keys of loggers


class FitResult(NamedTuple):
    """Result of `fit`: the trainer, three of its callbacks, the changed keys of the encoder, and the settings that a
    resumed run has changed. The trained module contains the weights of the best checkpoint.
    """

    trainer: pl.Trainer
    score_callback: ScoreCallback
    final: FinalScores
    telemetry: Telemetry
    changes: dict[str, list[Any]]  # keys that make the untrained encoder differ from its backbone
    resumed: list[ResumedSettings]


def fit(
    prepared: PreparedRun,
    checkpoint: str | None,
    loggers: Sequence[Any],
    rank_monitor: RankFailureMonitor,
    saved: Callable[[], None] | None = None,
) -> tuple[FitResult, int]:
    """Train a model, and score its best checkpoint.

    Args:
        checkpoint: the file to resume from.
        saved: called on rank 0 after each checkpoint.

    Returns:
        The result, and the exit code: 130 or 143 if a signal stopped the training, else 0.
    """
    run, _, recipe, model, data, suites = prepared
    changes = model.changes if isinstance(model, Objective) else {}
    score_callback = _score_callback(run, suites, changes)
    checkpoints = _checkpoints(run, saved)
    own = None if run.callbacks else run.monitor  # callbacks may log any metric
    telemetry = Telemetry(every_n_steps=run.log_every_n_steps, monitor=own, resumed=checkpoint is not None)
    interruption, record = Interruption(), ConfigRecord(recipe, grouped_rows(data))
    final = FinalScores(
        score_callback,
        checkpoints.best_path,
        skip=lambda: interruption.exit_status is not None,
        load=_loader(run, model),
    )
    callbacks = [
        rank_monitor,
        record,
        Reseed(run.seed),
        score_callback,
        telemetry,
        RunEstimate(score_callback, quiet=run.quiet),
        FreedMemoryReuse(),
        TrainingProgress(quiet=run.quiet, monitor=run.monitor),
        *(hydra.utils.instantiate(callback) for callback in run.callbacks.values()),
        final,
        interruption,
        checkpoints,
    ]
    trainer = make_trainer(run, callbacks=callbacks, logger=loggers)
    negatives = set_up_data(prepared, trainer)
    resumed = None
    if checkpoint is not None:
        found, batches = load_checkpoint(checkpoint), len(data.train_dataloader())
        resumed = resumption(checkpoint, found, recipe, run.folder, batches, data.num_examples)
        record.rates_differ, record.resumed = resumed.rates_differ, resumed.history
    for name, fact in facts(prepared, trainer, score_callback, resumed, changes, negatives):
        log.info("%s", f"{name:<{WIDTH}} {fact}")
    trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    if run.monitor and checkpoints.best_score is None and interruption.exit_status is None:
        log.warning("monitor=%s was never computed, so best.ckpt is the last checkpoint.", run.monitor)
    return FitResult(trainer, score_callback, final, telemetry, changes, record.resumed), interruption.exit_status or 0


def _score_callback(run: ResolvedRun, suites: Suites, changes: Mapping[str, Any]) -> ScoreCallback:
    """Return the callback that scores the encoder. If it differs from its backbone before training (``changes``), the
    backbone is scored, too.
    """
    evaluation = run.evaluation
    return ScoreCallback(
        suites.final,
        suites.during,
        every_n_steps=evaluation.every_n_steps,
        at_start=evaluation.at_start,
        is_last_step=is_last_step,
        progress=not run.quiet,
        precision=evaluation.precision,
        load_backbone=(lambda device: load_encoder(str(run.backbone), device=device)) if changes else None,
    )


def _checkpoints(run: ResolvedRun, saved: Callable[[], None] | None) -> RunCheckpoints:
    return RunCheckpoints(
        run.folder / "checkpoints",
        every_n_steps=run.checkpoint.every_n_steps,
        every_n_minutes=run.checkpoint.every_n_minutes,
        monitor=run.monitor,
        mode=mode_of(run.monitor, run.monitor_mode),
        patience=run.early_stopping,
        saved=saved,
    )


def _loader(run: ResolvedRun, model: Any) -> Callable[[pl.LightningModule, dict[str, Any]], bool]:
    """Return the function that loads the best checkpoint for the final scores. It returns whether the module already
    had these weights. With ``initial_weights_fraction``, the loaded weights are averaged with the current ones of
    ``model``.
    """
    share = run.initial_weights_fraction or 0.0
    start = copy_of_weights(model) if share and isinstance(model, Objective) else None

    def load(module: pl.LightningModule, checkpoint: dict[str, Any]) -> bool:
        was_narrow = dequantize_frozen_layers(module, lambda: make_model(run), "model.frozen_dtype=nf4")
        module.on_load_checkpoint(checkpoint)  # as Lightning does: restores what the checkpoint omits
        is_last = load_weights(module, checkpoint["state_dict"]) and not was_narrow
        if start is None:
            return is_last
        assert isinstance(module, Objective)
        average_with(module, start, share)
        return False

    return load


def mode_of(monitor: str | None, mode: str | None) -> str:
    """Return whether lower ("min") or higher ("max") values of ``monitor`` are better. If ``mode`` is None, this is
    "min" for a loss (including the loss of a data source or of a prefix) or a distance, otherwise "max".
    """
    less = monitor in LESS_IS_BETTER or (monitor or "").startswith(("train/loss/", "train/loss@"))
    return mode or ("min" if less else "max")


def make_loggers(run: ResolvedRun) -> list[Any]:
    """Create the logger of metrics.csv and the logger that the key ``logger`` chooses. If the folder of the latter is
    null, it is the run directory.
    """
    keys = {name: run.output_dir if value is None and name in FOLDERS else value for name, value in run.logger.items()}
    others = [hydra.utils.instantiate(keys)] if "_target_" in keys else []
    return [MetricsCSV(run.folder), *others]
