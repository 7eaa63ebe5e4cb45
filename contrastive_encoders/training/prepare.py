"""Prepare a run: build its model and data, and determine the settings that depend on them.

These are the batch size and the steps for few rows (``few_rows_epochs``), the length of training texts, the prompts of
the encoder, and the tasks that are scored and monitored.
"""

import gc
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from contrastive_encoders.core import DataModule, InputError
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.datamodules.row_datamodules import NLIPairs
from contrastive_encoders.datamodules.sources.row_schemas import RELATIONS
from contrastive_encoders.evaluation.callback import Suites
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.training.build import data_modules, make_data, make_model, make_trainer
from contrastive_encoders.training.checks import check_checkpoint, check_room
from contrastive_encoders.training.data_summary import name_of
from contrastive_encoders.training.encoder_prompts import settle_prompts
from contrastive_encoders.training.max_length import settle_lengths
from contrastive_encoders.training.neighbor_batches import GROUPED_ROWS, group_neighbors
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.run_directory import Start
from contrastive_encoders.training.run_setup import load_stage_weights
from contrastive_encoders.training.scoring import choose
from contrastive_encoders.training.teacher import (
    fit_projections,
    has_same_teacher,
    is_made_by_stage,
    learn_from_teacher,
    load_teacher,
)
from contrastive_encoders.training.usable_negatives import Counts, count_usable_negatives

MIN_ROWS = 1_000  # minimum for the values of the config
MIN_STEPS = 2  # in an epoch, with fewer rows
MULTIPLE = 8  # of a batch

log = logging.getLogger(__name__)


class PreparedRun(NamedTuple):
    """A run with its model and data, whose remaining settings have been determined.

    Attributes:
        run: the run; ``backbone`` is the location of its weights.
        backbone: the backbone's name in the config.
        recipe: all keys of the run, with this name of the backbone and with the requested evaluation tasks.
        suites: the tasks that are evaluated at the end and during training.
    """

    run: ResolvedRun
    backbone: str
    recipe: dict[str, Any]
    model: Any
    data: Any
    suites: Suites


def prepare(run: ResolvedRun, start: Start, before: Path | None) -> PreparedRun:
    """Build the model and the data of a run, check them, and load the weights of the previous stage if there is one.

    Args:
        before: directory of the previous stage, if the run starts from its weights.

    Raises:
        InputError: the model, the data, the scores, or the checkpoint are invalid.
        OutputError: the disk has too little space for a checkpoint.
    """
    prepared = _prepared(run, start.backbone)
    model = prepared.model
    check_room(run.folder, model)
    grouped = dict[str, int]()
    if start.checkpoint:
        check_checkpoint(start.checkpoint, model, run.recorded_keys())
        grouped = load_checkpoint(start.checkpoint).get(GROUPED_ROWS, grouped)
    else:
        loaded = load_stage_weights(model, before) if before else set()
        fit_projections(prepared.run, model, prepared.data, loaded if has_same_teacher(prepared.run, before) else set())
    group_neighbors(prepared.run, model, prepared.data, grouped)
    return prepared


def dry_run_stage(run: ResolvedRun, backbone: str | None) -> None:
    """Build a later stage as far as possible, so that errors in the stage's settings are raised before the previous
    stages are trained.
    """
    if run.is_finished:
        return
    prepared = _prepared(run, backbone, rehearsal=True)
    set_up_data(prepared, make_trainer(prepared.run, logger=False))


def set_up_data(prepared: PreparedRun, trainer: Any) -> dict[str, Counts]:
    """Set up the data for a trainer, and check that the objective can use them. Return the number of negatives per
    anchor, as `count_usable_negatives` does.
    """
    model, data = prepared.model, prepared.data
    data.trainer = trainer
    data.setup()
    check_samples(model, data)
    check_labels(data)
    loader = data.train_dataloader()  # checks the batch size
    return count_usable_negatives(model, data, loader, trainer, name_of(prepared.run.data))


def _prepared(run: ResolvedRun, backbone: str | None, *, rehearsal: bool = False) -> PreparedRun:
    name, keys = str(run.backbone), {"num_workers": 0} if rehearsal else {}
    run = run.with_values(backbone=backbone)
    data, model = make_data(run, **keys), make_model(run)
    is_missing = rehearsal and is_made_by_stage(run)
    teacher = None if is_missing else load_teacher(run)  # its errors are raised before texts are read
    data.prepare_data()
    fitted = fit_to_rows(run, rows_of(data)) if run.few_rows_epochs else run
    if fitted.batch_size != run.batch_size:
        data = make_data(fitted, **keys)
        data.prepare_data()
    settle_lengths(fitted, model, data)
    settle_prompts(model, data)
    if not rehearsal:
        learn_from_teacher(fitted, model, data, teacher)
    if teacher is not None:
        del teacher
        free_memory()
    recipe = fitted.with_values(backbone=name).recorded_keys()
    evaluated, suites = choose(fitted, model, data)
    return PreparedRun(evaluated, name, recipe, model, data, suites)


def fit_to_rows(run: ResolvedRun, rows: int) -> ResolvedRun:
    """Return the run with a smaller batch size and number of steps if there are few rows. The user's settings are kept.

    Below 1,000 training rows, the batch size is half of the number of rows, rounded down to a multiple of 8, and at
    most that of the config. The number of steps is at most that of the config and ``few_rows_epochs``
    times the rows, divided by the batch size.
    """
    if run.few_rows_epochs is None or run.batch_size is None or rows >= MIN_ROWS:
        return run
    size, steps = run.batch_size, run.max_steps
    if "batch_size" not in run.explicit_keys:
        size = min(size, max(1, rows // MIN_STEPS // MULTIPLE * MULTIPLE or rows // MIN_STEPS))
    if "max_steps" not in run.explicit_keys and steps > 0:
        steps = min(steps, max(1, run.few_rows_epochs * rows // size))
    if (size, steps) != (run.batch_size, run.max_steps):
        log.info("batch_size=%d max_steps=%d, because the data has only %s", size, steps, count_of(rows, "row"))
    return run.with_values(batch_size=size, max_steps=steps)


def rows_of(data: Any) -> int:
    """Return the number of examples of a data module, before the maximum length of its texts is determined."""
    parts = getattr(data, "parts", None)
    if parts:
        return sum(rows_of(part) for part in parts.values())
    return round(len(data.opened) * data.settings.fraction)


def check_samples(model: Any, data: DataModule) -> None:
    """Check before the first step that the objective can use the data, for each data source of a mixture."""
    for batch in data.samples():
        try:
            model.check_batch(batch)
        except InputError as error:
            if isinstance(batch.part, str):
                raise error.with_prefix(f"data.parts.{batch.part}") from error
            raise


def check_labels(data: DataModule) -> None:
    """Check that the pairs to classify have different labels, over all data sources of a mixture.

    Raises:
        InputError: all of them have the same label.
    """
    parts = list(data_modules(data).values())
    if not all(isinstance(part, NLIPairs) for part in parts):
        return
    labels = {int(label) for part in parts for label in np.unique(part.store.labels)}
    if len(labels) == 1:
        raise InputError(
            location=", ".join(part.records.name for part in parts),
            expected="pairs with different labels, because a classifier learns nothing from a single label",
            value=f"{RELATIONS[labels.pop()]} only",
        )


def free_memory() -> None:
    """Free the memory of models that are no longer referenced, and reset the device's peak memory counter."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
