"""Execution of a resolved run, stage by stage, up to its results.

A run without stages is a single training run. ``compose.py`` converts a command line to a `RunConfig`, ``resolve.py``
gives each key a value, ``checks.py`` validates, ``run_setup.py`` claims the directory, ``prepare.py`` builds model and
data, ``fit.py`` trains, and ``finish.py`` writes the outputs. This module gets the resolved run and calls the
others.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from contrastive_encoders.core import Results
from contrastive_encoders.core.runtime.process_group import broadcast_from_rank_zero, find_ranks
from contrastive_encoders.core.runtime.signals import TERMINATED
from contrastive_encoders.io.output_directory import LOCK, register_worker
from contrastive_encoders.io.results import read_results
from contrastive_encoders.training.callbacks.rank_failures import RankFailureMonitor
from contrastive_encoders.training.checks import check_run
from contrastive_encoders.training.finish import export, finish, finish_stages
from contrastive_encoders.training.fit import fit, make_loggers
from contrastive_encoders.training.gense_domain import synthesize_domain
from contrastive_encoders.training.prepare import dry_run_stage, free_memory, prepare
from contrastive_encoders.training.resolve import ResolvedRun, log_already_finished
from contrastive_encoders.training.run_directory import check_writable, is_empty, mirror_of
from contrastive_encoders.training.run_setup import (
    deduplicate_log_messages,
    prepare_folder,
    prepare_multi_stage_run,
    quiet_library_logging,
    resolve_stage_backbone,
    start_processes,
)
from contrastive_encoders.training.teacher_comparison import score_teacher
from contrastive_encoders.training.wandb_session import close_wandb

MAX_COPY_SECONDS = 40.0  # to copy the last checkpoint after a signal or an error
DEDUPLICATED_LOGGERS = (  # by each stage, and by its check before training
    "contrastive_encoders.training.max_length",
    "contrastive_encoders.training.prepare",
    "contrastive_encoders.training.scoring",
    "contrastive_encoders.training.usable_negatives",
    "contrastive_encoders.encoders.layers",
    "contrastive_encoders.datamodules.mixture",
)

log = logging.getLogger(__name__)


def run_stages(run: ResolvedRun) -> Results | None:
    """Train or resume a run, on all processes of its process group.

    Returns:
        The contents of ``results.json`` on rank 0; None on other ranks, or if stages remain to be trained.

    Raises:
        InputError: a key or the data are invalid.
        OutputError, TrainingError: the disk is full, or the training failed.
        KeyboardInterrupt, SystemExit: the process received SIGINT or SIGTERM, and the state is saved.
    """
    with quiet_library_logging(), deduplicate_log_messages(*DEDUPLICATED_LOGGERS):
        status = 1
        try:
            check_writable(run.folder)
            check_run(run)
            start_processes(run)
            status = _train_with_copies(run)
        finally:
            close_wandb(status)
    if status == TERMINATED:
        raise SystemExit(TERMINATED)
    if status:
        raise KeyboardInterrupt
    path = run.folder / "results.json"
    return read_results(path) if find_ranks().rank == 0 and path.exists() else None


def _train_with_copies(run: ResolvedRun) -> int:
    """Train a run, copy its directory if ``remote_output_dir`` is set, and return the exit code."""
    rank_monitor = RankFailureMonitor()
    mirror = mirror_of(run.folder, run.remote_output_dir, run.identity)
    if mirror is None:
        with rank_monitor.name_dead_ranks():  # also between two stages
            return _train_stages(run, rank_monitor, None)
    replace = run.overwrite and run.only_stage is None
    broadcast_from_rank_zero(lambda: mirror.begin(replace=replace, fetch=is_empty(run.folder)))
    try:
        with rank_monitor.name_dead_ranks():
            status = _train_stages(run, rank_monitor, mirror.copy)
    except Exception:
        mirror.wait_at_end(MAX_COPY_SECONDS)
        raise
    if status:
        mirror.wait_at_end(MAX_COPY_SECONDS)
    elif find_ranks().rank == 0:
        mirror.finish()
    return status


def _train_stages(run: ResolvedRun, rank_monitor: RankFailureMonitor, saved: Callable[[], None] | None) -> int:
    """Train the stages of a run in order. Each stage starts from the best weights of the previous stage. Return the
    exit code. Finished stages are skipped.
    """
    if not run.all_stages:
        return _train_stage(run, rank_monitor, saved=saved)
    broadcast_from_rank_zero(lambda: synthesize_domain(run))
    start = broadcast_from_rank_zero(lambda: prepare_multi_stage_run(run))
    if start.finished:
        log_already_finished(run)
        return 0
    for stage in run.trainings[1:]:
        with stage.named_in_errors():
            dry_run_stage(stage, start.backbone)
    for stage in run.trainings:
        with stage.named_in_errors():
            resolved, before = resolve_stage_backbone(run.all_stages, stage, start.backbone)
            status = _train_stage(resolved, rank_monitor, before, saved)
        close_wandb(status)
        free_memory()
        if status:
            return status
    broadcast_from_rank_zero(lambda: finish_stages(run))
    return 0


def _train_stage(
    run: ResolvedRun,
    rank_monitor: RankFailureMonitor,
    before: Path | None = None,
    saved: Callable[[], None] | None = None,
) -> int:
    """Train or resume a run without stages, or a single stage; evaluate and export the encoder. Return the exit code.

    Args:
        before: directory of the previous stage, whose weights a stage starts from.
        saved: called after each checkpoint.
    """
    loggers = make_loggers(run)  # raises an error early if a login is missing
    start = broadcast_from_rank_zero(lambda: prepare_folder(run))
    if start.finished:
        log_already_finished(run)
        return 0
    if find_ranks().rank > 0:
        register_worker(run.folder / LOCK)
    prepared = prepare(run, start, before)
    for logger in loggers:
        logger.log_hyperparams(run.recorded_keys())
    fitted, status = fit(prepared, start.checkpoint, loggers, rank_monitor, saved)
    if status == 0:
        exported = export(prepared, fitted) if fitted.trainer.is_global_zero else None
        teacher_scores = score_teacher(prepared.run, fitted.score_callback)
        if exported is not None:
            finish(prepared, *exported, teacher_scores)
    return status
