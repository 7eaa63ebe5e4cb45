"""Fit one model: callbacks, loggers, scoring during training, and initial weights."""

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import pytorch_lightning as pl
import torch

from contrastive_encoders.core import DataModule, InputError, ResumedSettings
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.encoders.lora import is_adapter, widen
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.sharding import load_weights
from contrastive_encoders.evaluation.callback import FinalScores, ScoreCallback
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.manifest import Damaged
from contrastive_encoders.runtime.process_group import join_group_again
from contrastive_encoders.training.build import make_model, make_trainer, recipe_of
from contrastive_encoders.training.callbacks.checkpoints import BEST, RunCheckpoints
from contrastive_encoders.training.callbacks.config_record import ConfigRecord
from contrastive_encoders.training.callbacks.estimate import Estimate
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption
from contrastive_encoders.training.callbacks.progress import Progress
from contrastive_encoders.training.callbacks.rank_failures import Companions
from contrastive_encoders.training.callbacks.reseed import Reseed
from contrastive_encoders.training.callbacks.telemetry import Telemetry, is_last_step
from contrastive_encoders.training.metrics_csv import MetricsCSV
from contrastive_encoders.training.resume import resumption
from contrastive_encoders.training.run_config import RunConfig
from contrastive_encoders.training.scoring import choose
from contrastive_encoders.training.startup_summary import Opening, name_of, say_opening
from contrastive_encoders.training.usable_negatives import count_usable_negatives
from contrastive_encoders.training.weight_average import average_with, copy_of_weights

log = logging.getLogger(__name__)

LESS_IS_BETTER = ("train/loss", "train/mlm", "train/contrastive", "generator-dev/perplexity")
OF_THE_TRANSFORMER = "encoder.transformer."
FOLDERS = ("save_dir", "output_dir")  # keys of loggers


class Fitted(NamedTuple):
    """The result of a fit. The module holds the weights of the best checkpoint."""

    run: RunConfig  # with the score that is really monitored
    trainer: pl.Trainer
    scorer: ScoreCallback
    final: FinalScores
    telemetry: Telemetry
    changes: dict[str, list[Any]]  # keys that make the untrained encoder differ from its backbone
    resumed: list[ResumedSettings]


def fit(
    run: RunConfig,
    model: pl.LightningModule,
    data: DataModule,
    checkpoint: str | None,
    loggers: Sequence[Any],
    backbone: str,
    companions: Companions,
    saved: Callable[[], None] | None = None,
) -> tuple[Fitted, int]:
    """Train a model, and score its best checkpoint.

    Args:
        checkpoint: the file to continue from.
        backbone: the name that the user gave, for the opening lines.
        saved: called on rank 0 after each checkpoint.

    Returns:
        The result, and the exit status: 130 or 143 if a signal ended the training, else 0.
    """
    recipe = recipe_of(replace(run, backbone=backbone))
    run, suites = choose(run, model, data)
    scoring, folder = run.evaluation, Path(str(run.output_dir))
    changes = model.changes if isinstance(model, Objective) else {}
    scorer = ScoreCallback(
        *suites,
        scoring.every_n_steps,
        scoring.at_start,
        is_last_step,
        not run.quiet,
        scoring.precision,
        (lambda device: load_encoder(str(run.backbone), device=device)) if changes else None,
    )
    mode = mode_of(run.monitor, run.monitor_mode)
    checkpoints = RunCheckpoints(
        folder / "checkpoints",
        every_n_steps=run.checkpoint.every_n_steps,
        every_n_minutes=run.checkpoint.every_n_minutes,
        monitor=run.monitor,
        mode=mode,
        patience=run.early_stopping,
        saved=saved,
    )
    own = None if run.callbacks else run.monitor  # they may log what they like
    telemetry = Telemetry(every_n_steps=run.log_every_n_steps, monitor=own, resumed=checkpoint is not None)
    interruption, record = Interruption(), ConfigRecord(recipe)

    def is_cut() -> bool:
        return interruption.exit_status is not None

    share = run.average_with_start or 0.0
    start = copy_of_weights(model) if share and isinstance(model, Objective) else None

    def load(module: pl.LightningModule, checkpoint: dict[str, Any]) -> bool:
        was_narrow = widen(module, lambda: make_model(run), "model.frozen_weights=nf4")
        module.on_load_checkpoint(checkpoint)  # as Lightning does: what it leaves out is put back
        as_last = load_weights(module, checkpoint["state_dict"]) and not was_narrow
        if start is None:
            return as_last
        assert isinstance(module, Objective)
        average_with(module, start, share)
        return False

    final = FinalScores(scorer, checkpoints.best_path, skip=is_cut, load=load)
    callbacks = [
        companions,
        record,
        Reseed(run.seed),
        scorer,
        telemetry,
        Estimate(scorer, quiet=run.quiet),
        Progress(quiet=run.quiet, monitor=run.monitor),
        *(hydra.utils.instantiate(callback) for callback in run.callbacks.values()),
        final,
        interruption,
        checkpoints,
    ]
    trainer = make_trainer(run, callbacks=callbacks, logger=loggers)
    loader: Any = data  # Lightning's part of it
    loader.trainer = trainer
    loader.setup()
    check_samples(model, data)
    stream = loader.train_dataloader()  # refuses a batch size before Lightning starts more processes
    batches = len(stream)
    negatives = count_usable_negatives(model, loader, stream, trainer, name_of(run.data))
    resumed = None
    if checkpoint is not None:
        found = load_checkpoint(checkpoint)
        resumed = resumption(checkpoint, found, recipe, folder, batches, loader.num_examples)
        record.rates_differ, record.resumed = resumed.rates_differ, resumed.history
    say_opening(Opening(run, backbone, resumed, changes, negatives), model, loader, trainer, scorer)
    join_group_again("nccl" if trainer.strategy.root_device.type == "cuda" else "gloo")
    trainer.fit(model, datamodule=loader, ckpt_path=checkpoint, weights_only=True)
    if run.monitor and checkpoints.best_score is None and interruption.exit_status is None:
        log.warning("monitor=%s was never computed; best.ckpt is last.ckpt.", run.monitor)
    return Fitted(run, trainer, scorer, final, telemetry, changes, record.resumed), interruption.exit_status or 0


def mode_of(monitor: str | None, said: str | None) -> str:
    """Return "min" or "max": what the user ``said``, else "min" for losses, those of parts included, and "max"."""
    less = monitor in LESS_IS_BETTER or (monitor or "").startswith("train/loss/")
    return said or ("min" if less else "max")


def check_samples(model: Any, data: DataModule) -> None:
    """Refuse data that the objective cannot use before the first step; each part of a mixture is checked."""
    for batch in data.samples():
        try:
            model.check_batch(batch)
        except InputError as error:
            if isinstance(batch.part, str):
                raise InputError(f"data.parts.{batch.part}: {error}") from error
            raise


def make_loggers(run: RunConfig) -> list[Any]:
    """Return the logger of metrics.csv, and that of ``logger=``; a folder of its own that is null is the run's."""
    folder = Path(str(run.output_dir))
    keys = {name: str(folder) if value is None and name in FOLDERS else value for name, value in run.logger.items()}
    added = [hydra.utils.instantiate(keys)] if "_target_" in keys else []
    return [MetricsCSV(folder), *added]


def take_weights(model: pl.LightningModule, before: Path) -> None:
    """Load the best weights of the run in ``before`` that fit by name and size.

    The transformer is there already, as the run's folder is the backbone; this brings what stands behind it. Adapters
    of that run are in its transformer, or below a new one.
    """
    best = before / "checkpoints" / BEST
    try:
        saved = load_checkpoint(best)["state_dict"]
    except (OSError, Damaged) as error:
        raise InputError(
            f"{best}: wanted the weights that this stage begins from ({error}). Copy a good checkpoint there, or train "
            f"the stage before anew: remove {before}."
        ) from error
    weights = model.state_dict()
    there = {name: weight.shape for name, weight in weights.items() if not weight.is_meta}  # others come from rank 0
    known = {name: saved[name] for name in saved if name in there and not is_adapter(name)}
    same = {name: weight for name, weight in known.items() if there[name] == weight.shape}
    model.load_state_dict(same, strict=False)
    fresh = sorted(name for name in weights.keys() - same.keys() if not name.startswith(OF_THE_TRANSFORMER))
    if fresh:
        log.info("new in this stage: %s", ", ".join(fresh))


def free_memory() -> None:
    """Free the memory of a stage that has ended, and reset the peak that the device counts."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
