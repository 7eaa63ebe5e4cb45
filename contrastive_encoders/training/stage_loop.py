"""A run from its settings to its results, stage by stage.

A run without stages is one stage. ``compose.py`` makes a `RunConfig` of a command line, ``checks.py`` refuses,
``run_setup.py`` settles the directory and the backbone, ``fit.py`` trains, ``finish.py`` writes what stays; here they
follow each other.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from contrastive_encoders.core import Results
from contrastive_encoders.io.output_directory import LOCK, work_for
from contrastive_encoders.io.results import read_results
from contrastive_encoders.runtime.child_processes import works_for_another
from contrastive_encoders.runtime.process_group import find_ranks, from_rank_zero, leave_group_at_exit, rank_here
from contrastive_encoders.runtime.signals import TERMINATED
from contrastive_encoders.training.build import make_data, make_model, make_trainer, recipe_of
from contrastive_encoders.training.callbacks.rank_failures import Companions
from contrastive_encoders.training.checks import (
    check_average,
    check_checkpoint,
    check_device,
    check_model_and_data,
    check_room,
    check_values,
)
from contrastive_encoders.training.encoder_prompts import settle_prompts
from contrastive_encoders.training.few_rows import fit_to_rows, rows_of
from contrastive_encoders.training.finish import finish, finish_stages
from contrastive_encoders.training.fit import check_samples, fit, free_memory, make_loggers, take_weights
from contrastive_encoders.training.gense_domain import synthesise_domain
from contrastive_encoders.training.max_length import check_lengths, settle_lengths
from contrastive_encoders.training.neighbor_batches import group_neighbours
from contrastive_encoders.training.run_config import RunConfig
from contrastive_encoders.training.run_directory import check_writable, is_empty, mirror_of
from contrastive_encoders.training.run_setup import (
    Start,
    begin,
    hushed_libraries,
    prepare_folder,
    prepare_whole,
    said_once,
)
from contrastive_encoders.training.scoring import choose
from contrastive_encoders.training.stages import Stage, chosen, folder_of, say_finished, stages_of
from contrastive_encoders.training.startup_summary import name_of
from contrastive_encoders.training.target_checks import check_targets
from contrastive_encoders.training.teacher import check_teacher_keys, learn_from_teacher, load_teacher
from contrastive_encoders.training.teacher_comparison import score_teacher
from contrastive_encoders.training.usable_negatives import count_usable_negatives
from contrastive_encoders.training.wandb_session import close_wandb

TO_COPY = 40.0  # seconds for the copy of the last checkpoint, where a signal or an error has ended a run

log = logging.getLogger(__name__)


def run_stages(asked: RunConfig) -> Results | None:
    """Train what ``asked`` says on all processes that were started, or go on with what was begun.

    Returns:
        The contents of ``results.json``; None on other ranks than the first, and while stages are left.

    Raises:
        InputError: something that was asked for is wrong.
        OutputError, TrainingError: there is no room, or the training failed.
        KeyboardInterrupt, SystemExit: SIGINT or SIGTERM came, and the state is saved.
    """
    said = said_once(
        *(
            "contrastive_encoders.training.few_rows",
            "contrastive_encoders.training.max_length",
            "contrastive_encoders.training.scoring",
            "contrastive_encoders.training.usable_negatives",
        ),
        *("contrastive_encoders.encoders.layers", "contrastive_encoders.datamodules.mixture"),
    )
    with hushed_libraries(), said:
        status = 1
        try:
            stages = stages_of(asked)
            folder = folder_of(asked, stages)
            status = _run(replace(asked, output_dir=str(folder)), stages)
        finally:
            close_wandb(status)
    if status == TERMINATED:
        raise SystemExit(TERMINATED)
    if status:
        raise KeyboardInterrupt
    path = folder / "results.json"
    return read_results(path) if find_ranks().rank == 0 and path.exists() else None


def _run(whole: RunConfig, stages: list[Stage]) -> int:
    selected = chosen(stages, whole.only_stage)
    check_writable(Path(str(whole.output_dir)))
    leave_group_at_exit()
    for stage in selected:
        with stage.named_in_errors():
            check_targets(stage.run)
            model = check_model_and_data(stage.run)
            check_average(stage.run, model, is_stage=len(stages) > 1)
            check_values(stage.run)
            check_teacher_keys(stage.run)
            check_lengths(stage.run)
            check_device(stage.run)
    companions = Companions()
    folder = Path(str(whole.output_dir))
    mirror = mirror_of(folder, whole.mirror, stages[-1].identity)
    if mirror is None:
        with companions.named():  # between two stages, too
            return _train(whole, stages, selected, companions, None)
    anew = whole.overwrite and whole.only_stage is None
    from_rank_zero(lambda writer: mirror.begin(anew=anew, fetch=is_empty(folder)) if writer else [])
    try:
        with companions.named():
            status = _train(whole, stages, selected, companions, mirror.copy)
    except Exception:
        mirror.wait_at_end(TO_COPY)
        raise
    if status:
        mirror.wait_at_end(TO_COPY)
    elif rank_here() == 0:
        mirror.finish()
    return status


def _train(
    whole: RunConfig,
    stages: list[Stage],
    selected: list[Stage],
    companions: Companions,
    saved: Callable[[], None] | None,
) -> int:
    if whole.stages:
        return _one_by_one(whole, stages, selected, companions, saved)
    return run_stage(stages[0], companions, saved=saved)


def _one_by_one(
    whole: RunConfig,
    stages: list[Stage],
    selected: list[Stage],
    companions: Companions,
    saved: Callable[[], None] | None,
) -> int:
    """Train the selected stages in turn, each from the best weights of the stage before it, and return the exit status.
    Finished stages are skipped.
    """
    folder = Path(str(whole.output_dir))
    from_rank_zero(lambda writer: [writer and synthesise_domain(whole, selected)])
    start = Start(*from_rank_zero(lambda writer: prepare_whole(whole, stages, selected, writer)))
    if start.finished:
        say_finished(folder)
        return 0
    for stage in selected[1:]:
        with stage.named_in_errors():
            rehearse(stage, start.backbone)
    for stage in selected:
        with stage.named_in_errors():
            begun, before = begin(stages, stage, start.backbone)
            status = run_stage(begun, companions, before, saved)
        close_wandb(status)
        free_memory()
        if status:
            return status
    from_rank_zero(lambda writer: [writer and finish_stages(whole, stages)])
    return 0


def rehearse(stage: Stage, backbone: str | None) -> None:
    """Build a later stage as far as it can be now: what is wrong with it should not show after those before it."""
    if stage.is_finished:
        return
    run = replace(stage.run, backbone=backbone)
    data: Any = make_data(run, num_workers=0)
    model = make_model(run)
    data.prepare_data()
    run, data = _fitted(run, data, num_workers=0)
    settle_lengths(run, model, data)
    settle_prompts(model, data)
    choose(run, model, data)
    data.trainer = make_trainer(run, logger=False)
    data.setup()
    check_samples(model, data)
    count_usable_negatives(model, data, data.train_dataloader(), data.trainer, name_of(run.data))


def run_stage(
    stage: Stage, companions: Companions, before: Path | None = None, saved: Callable[[], None] | None = None
) -> int:
    """Exit status of one stage: train or continue, score, export. ``before`` is the folder that it begins from;
    ``saved`` is called after each checkpoint.
    """
    folder = stage.folder
    loggers = make_loggers(stage.run)  # a missing login shows here
    start = Start(*from_rank_zero(lambda writer: prepare_folder(stage, writer)))
    if start.finished:
        say_finished(folder)
        return 0
    if works_for_another():
        work_for(folder / LOCK)
    run = replace(stage.run, backbone=start.backbone)
    data = make_data(run)
    model = make_model(run)  # what is wrong with it shows before texts are read
    teacher = load_teacher(run)
    data.prepare_data()
    run, data = _fitted(run, data)
    settle_lengths(run, model, data)
    settle_prompts(model, data)
    learn_from_teacher(run, model, data, folder, teacher)
    if teacher is not None:
        del teacher
        free_memory()
    check_room(folder, model)
    if start.checkpoint:
        check_checkpoint(start.checkpoint, model, stage.run)
    elif before:
        take_weights(model, before)
    group_neighbours(run, model, data, folder)
    for logger in loggers:
        logger.log_hyperparams(recipe_of(stage.run))
    fitted, status = fit(run, model, data, start.checkpoint, loggers, str(stage.run.backbone), companions, saved)
    of_teacher = score_teacher(run, fitted.scorer) if status == 0 else None
    if status == 0 and fitted.trainer.is_global_zero:
        finish(replace(fitted.run, backbone=stage.run.backbone), model, data, fitted, stage.name, of_teacher)
    return status


def _fitted(run: RunConfig, data: Any, **keys: int) -> tuple[RunConfig, Any]:
    """Return the run with batch size and steps for the rows of its prepared data, and the data in such batches."""
    fitted = fit_to_rows(run, rows_of(data)) if run.few_rows_epochs else run
    if fitted.batch_size != run.batch_size:
        data = make_data(fitted, **keys)
        data.prepare_data()
    return fitted, data
