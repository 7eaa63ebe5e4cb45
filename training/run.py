"""A run from its config to its exit status, stage by stage.

A run without stages is one stage. ``stages.py`` composes, ``checks.py`` refuses, ``prepare.py`` settles the folder and
the backbone, ``fit.py`` trains, ``leave.py`` writes what stays; here they follow each other.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from cli.child_processes import works_for_another
from cli.process_group import from_rank_zero
from storage.ownership import LOCK, work_for
from training.callbacks.other_ranks import Companions
from training.checks import check_checkpoint, check_device, check_model_and_data, check_room, check_values
from training.data_parts import make_data, make_model
from training.domain import domain_words, synthesise_domain
from training.finish import finish, finish_stages
from training.fit import check_samples, fit, free_memory, make_loggers, take_weights
from training.lengths import check_lengths, settle_lengths
from training.prepare import Start, begin, follow_launcher, hushed_libraries, prepare_folder, prepare_whole, said_once
from training.scoring import choose
from training.stages import Stage, chosen, lay_out, say_finished, stages_of
from training.targets import check_targets
from training.wandb_session import close_wandb

log = logging.getLogger("train")


def run(cfg: DictConfig) -> int:
    """Exit status of a whole run."""
    said = said_once("training.lengths", "training.scoring", "encoders.layers", "datamodules.mixture")
    with _no_empty_folder(Path(cfg.output_dir)), hushed_libraries(), said:
        status = 1
        try:
            status = _run(cfg)
        finally:
            close_wandb(status)
        return status


def _run(cfg: DictConfig) -> int:
    stages = stages_of(cfg, [*HydraConfig.get().overrides.task, *domain_words(cfg)])
    selected = chosen(stages, cfg.only_stage)
    for stage in selected:
        with stage.named_in_errors():
            check_targets(stage.cfg)
            check_model_and_data(stage.cfg)
            check_values(stage.cfg)
            check_lengths(stage.cfg)
            check_device(stage.cfg)
            follow_launcher(stage.cfg)
    companions = Companions()
    with companions.named():  # between two stages, too
        return run_stages(cfg, stages, selected, companions) if stages[0].name else run_stage(stages[0], companions)


def run_stages(cfg: DictConfig, stages: list[Stage], selected: list[Stage], companions: Companions) -> int:
    """Train those selected, each from the best weights of the one before it; what is finished is passed over."""
    if status := from_rank_zero(lambda writer: [writer and synthesise_domain(cfg, selected)])[0]:
        return int(status)
    lay_out(cfg, stages)
    start = Start(*from_rank_zero(lambda writer: prepare_whole(cfg, stages, selected, writer)))
    if start.finished:
        say_finished(Path(cfg.output_dir))
        return 0
    for stage in selected[1:]:
        with stage.named_in_errors():
            rehearse(stage, start.backbone)
    for stage in selected:
        with stage.named_in_errors():
            begun, before = begin(stages, stage, start.backbone)
            status = run_stage(begun, companions, before)
        close_wandb(status)
        free_memory()
        if status:
            return status
    from_rank_zero(lambda writer: [writer and finish_stages(cfg, stages)])
    return 0


def rehearse(stage: Stage, backbone: str | None) -> None:
    """Build a later stage as far as it can be now: what is wrong with it should not show after those before it."""
    if stage.is_finished:
        return
    cfg = stage.cfg.copy()
    cfg.backbone = backbone
    data: Any = make_data(cfg, num_workers=0)
    model = make_model(cfg)
    data.prepare_data()
    settle_lengths(cfg, model, data)
    choose(cfg, model, data)
    data.trainer = hydra.utils.instantiate(cfg.trainer, logger=False)
    data.setup()
    check_samples(model, data)
    data.train_dataloader()


def run_stage(stage: Stage, companions: Companions, before: Path | None = None) -> int:
    """Exit status of one stage: train or continue, score, export. ``before`` is the folder that it begins from."""
    cfg, folder = stage.cfg, stage.folder
    loggers = make_loggers(cfg, folder)  # a missing login shows here
    asked = cfg.copy()
    start = Start(*from_rank_zero(lambda writer: prepare_folder(stage, writer)))
    if start.finished:
        say_finished(folder)
        return 0
    if works_for_another():
        work_for(folder / LOCK)
    cfg.backbone = start.backbone
    data = make_data(cfg)
    model = make_model(cfg)  # what is wrong with it shows before texts are read
    data.prepare_data()
    settle_lengths(cfg, model, data)
    check_room(folder, model)
    if start.checkpoint:
        check_checkpoint(start.checkpoint, model)
    elif before:
        take_weights(model, before)
    for logger in loggers:
        logger.log_hyperparams(OmegaConf.to_container(asked, resolve=True))
    fitted, status = fit(cfg, model, data, folder, start.checkpoint, loggers, asked.backbone, companions)
    if status == 0 and fitted.trainer.is_global_zero:
        finish(asked, model, data, folder, fitted, stage.name)
    return status


@contextlib.contextmanager
def _no_empty_folder(folder: Path) -> Iterator[None]:
    """Hydra makes the output folder before anything is checked; a mistyped command leaves none."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it is not empty, or another process has removed it
            folder.rmdir()
