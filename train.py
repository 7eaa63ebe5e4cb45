"""Train one sentence encoder: ``python train.py model=declutr data=openwebtext``.

Composes the config, checks that model and data fit, instantiates, trains, and writes what a run leaves behind. No model
is named here; what a run may be told is in ``configs/train.yaml``.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from command.statuses import exit_statuses
from training.checks import check_checkpoint, check_choice, check_device, check_scoring, check_values, names_of
from training.domain import domain_words, synthesise_domain
from training.failures import TrainingFailed
from training.prepare import Start, begin, follow_launcher, hush_libraries, prepare_folder, prepare_whole
from training.stages import Stage, chosen, forced, lay_out, stages_of
from training.wandb_login import close_wandb

if TYPE_CHECKING:  # torch and Lightning take seconds to import: not before --help has been answered
    import pytorch_lightning as pl

    from contracts import DataModule, Results
    from evaluation.callback import FinalScores, ScoreCallback
    from evaluation.choice import Suites
    from training.callbacks.telemetry import Telemetry

log = logging.getLogger("train")

LESS_IS_BETTER = ("train/loss", "train/mlm", "train/contrastive", "generator-dev/perplexity")


class Fitted(NamedTuple):
    """A trained run, the module holding the weights of its best checkpoint."""

    trainer: "pl.Trainer"
    scorer: "ScoreCallback"
    final: "FinalScores"
    telemetry: "Telemetry"


def run(cfg: DictConfig) -> int:
    """Exit status of a whole run: its stages, of which a run without stages is one."""
    hush_libraries()
    stages = stages_of(cfg, [*HydraConfig.get().overrides.task, *domain_words(cfg)])
    selected = chosen(stages, cfg.only_stage)
    for stage in selected:
        with stage.told():
            check_choice(stage.cfg)
            check_values(stage.cfg)
            check_device(stage.cfg)
            follow_launcher(stage.cfg)
    return run_stages(cfg, stages, selected) if stages[0].name else train(stages[0])


def run_stages(cfg: DictConfig, stages: list[Stage], selected: list[Stage]) -> int:
    """Train those selected, each from the best weights of the one before it; what is finished is passed over."""
    from training.launcher import from_rank_zero
    from training.whole import let_go

    folder = Path(cfg.output_dir)
    if status := from_rank_zero(lambda writer: [writer and synthesise_domain(cfg, selected)])[0]:
        return int(status)
    lay_out(cfg, stages)
    start = Start(*from_rank_zero(lambda writer: prepare_whole(cfg, stages, selected, writer)))
    if start.finished:
        log.info("%s is finished: results.json is there. overwrite=true trains it again.", folder)
        return 0
    for stage in selected[1:]:
        with stage.told():
            rehearse(stage, start.backbone)
    for stage in selected:
        with stage.told():
            status = train(*begin(stages, stage, start.backbone))
        close_wandb(status)
        let_go()
        if status:
            return status
    from_rank_zero(lambda writer: [writer and finish_stages(cfg, folder, stages)])
    return 0


def rehearse(stage: Stage, backbone: str | None) -> None:
    """Build a later stage as far as it can be now: what is wrong with it should not show after those before it."""
    if stage.is_finished:
        return
    cfg = stage.cfg.copy()
    cfg.backbone = backbone
    data: Any = hydra.utils.instantiate(cfg.data, num_workers=0, _convert_="all")
    data.prepare_data()
    model = hydra.utils.instantiate(cfg.model, _convert_="all")
    choose(cfg, model, data)
    data.trainer = hydra.utils.instantiate(cfg.trainer, logger=False)
    data.setup()
    model.check_batch(next(iter(data.train_dataloader())))


def train(stage: Stage, before: Path | None = None) -> int:
    """Exit status of one stage: train or continue, score, export. ``before`` is the folder that it begins from."""
    from training.launcher import from_rank_zero
    from training.whole import take_weights

    cfg, folder = stage.cfg, stage.folder
    loggers = make_loggers(cfg, folder)  # a missing login shows here
    asked = cfg.copy()
    start = Start(*from_rank_zero(lambda writer: prepare_folder(stage, writer)))
    if start.finished:
        log.info("%s is finished: results.json is there. overwrite=true trains it again.", folder)
        return 0
    cfg.backbone = start.backbone
    data = hydra.utils.instantiate(cfg.data, _convert_="all")
    data.prepare_data()
    model = hydra.utils.instantiate(cfg.model, _convert_="all")
    if start.checkpoint:
        check_checkpoint(start.checkpoint, model)
    elif before:
        take_weights(model, before)
    for logger in loggers:
        logger.log_hyperparams(OmegaConf.to_container(asked, resolve=True))
    fitted, status = fit(cfg, model, data, folder, start.checkpoint, loggers)
    if status == 0 and fitted.trainer.is_global_zero:
        finish(asked, model, data, folder, fitted)
    return status


def fit(
    cfg: DictConfig,
    model: "pl.LightningModule",
    data: "DataModule",
    folder: Path,
    checkpoint: str | None,
    loggers: list[Any],
) -> tuple[Fitted, int]:
    """Train, and score the best checkpoint; also the exit status, 130 or 143 when a signal cut it short."""
    from evaluation.callback import FinalScores, ScoreCallback
    from training.callbacks.checkpoints import RunCheckpoints
    from training.callbacks.progress import Progress
    from training.callbacks.reseed import Reseed
    from training.callbacks.signals import Interruption
    from training.callbacks.telemetry import Telemetry, is_last_step

    scoring = cfg.evaluation
    scorer = ScoreCallback(*choose(cfg, model, data), scoring.every_n_steps, scoring.at_start, is_last_step)
    checkpoints = RunCheckpoints(
        folder / "checkpoints",
        every_n_steps=cfg.checkpoint.every_n_steps,
        every_n_minutes=cfg.checkpoint.every_n_minutes,
        monitor=cfg.monitor,
        mode=cfg.monitor_mode or ("min" if cfg.monitor in LESS_IS_BETTER else "max"),
    )
    interruption, telemetry = Interruption(), Telemetry(cfg.log_every_n_steps)
    final = FinalScores(scorer, checkpoints.best_path, skip=lambda: interruption.exit_status is not None)
    callbacks = [
        Reseed(cfg.seed),
        scorer,
        telemetry,
        Progress(quiet=cfg.quiet, monitor=cfg.monitor),
        *(hydra.utils.instantiate(callback) for callback in cfg.callbacks.values()),
        final,
        interruption,
        checkpoints,
    ]
    trainer = hydra.utils.instantiate(cfg.trainer, callbacks=callbacks, logger=loggers)
    data.trainer = trainer
    data.setup()
    data.train_dataloader()  # a batch size that does not fit is refused here, before Lightning starts more processes
    trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    if cfg.monitor and checkpoints.best_score is None and interruption.exit_status is None:
        log.warning("monitor=%s was never computed; best.ckpt is last.ckpt.", cfg.monitor)
    return Fitted(trainer, scorer, final, telemetry), interruption.exit_status or 0


def choose(cfg: DictConfig, model: "pl.LightningModule", data: "DataModule") -> "Suites":
    """What is scored at the end and while training."""
    from evaluation.choice import choose_suites
    from evaluation.task import Options

    scoring = cfg.evaluation
    during = names_of(scoring.during) if scoring.every_n_steps else []
    options = Options(protocol=scoring.protocol)
    suites = choose_suites(model, data.held_out(), scoring.data_root, names_of(scoring.suite), during, options)
    check_scoring(cfg, *suites)
    return suites


def make_loggers(cfg: DictConfig, folder: Path) -> list[Any]:
    """metrics.csv always, and what ``logger=`` adds."""
    from training.metrics_csv import MetricsCSV

    loggers: list[Any] = [MetricsCSV(folder)]
    if cfg.logger and "_target_" in cfg.logger:
        loggers.append(hydra.utils.instantiate(cfg.logger))
    return loggers


def finish(cfg: DictConfig, model: Any, data: "DataModule", folder: Path, fitted: Fitted) -> None:
    """What was trained, the curve, and results.json last: its presence says that the run is done."""
    from export.products import export_product
    from files.items import items_beside, write_items
    from files.results import write_results
    from training.callbacks.progress import closing_table
    from training.curve import draw_curve

    results = collect_results(cfg, model, data, fitted)
    for logger in fitted.trainer.loggers[1:]:  # metrics.csv is the curve alone
        logger.log_metrics(results["scores"], step=results["best_step"])
    export_product(folder, model, results)
    draw_curve(
        folder / "metrics.csv", folder / "curve.png", monitor=cfg.monitor, baselines=results.get("baselines", {})
    )
    if fitted.final.scores.items:
        write_items(items_beside(folder / "results.json"), fitted.final.scores.items)
    write_results(folder / "results.json", results)
    if not cfg.quiet:
        closing_table(results, folder, cfg.next_steps)


def finish_stages(cfg: DictConfig, folder: Path, stages: list[Stage]) -> bool:
    """Leave the whole, if all of its stages are there."""
    from export.model_card import model_card
    from training.callbacks.progress import closing_table
    from training.whole import leave_whole

    if not all(stage.is_finished for stage in stages):
        return False
    names, folders = [stage.name for stage in stages], [stage.folder for stage in stages]
    results = leave_whole(folder, names, folders, str(stages[0].cfg.backbone), model_card)
    if not cfg.quiet:
        closing_table(results, folder, cfg.next_steps)
    return True


def collect_results(cfg: DictConfig, model: Any, data: "DataModule", fitted: Fitted) -> "Results":
    from contracts import RESULTS_VERSION, Results
    from files.results import environment

    suite = fitted.scorer.suite
    found = environment()
    results = Results(
        version=RESULTS_VERSION,
        objective=model.objective,
        backbone=cfg.backbone,
        recipe=OmegaConf.to_container(cfg, resolve=True),
        scores=fitted.final.scores.values,
        intervals={name: list(interval) for name, interval in fitted.final.scores.intervals.items()},
        best_step=fitted.final.best_step,
        spent=fitted.telemetry.total,
        seeds=[cfg.seed],
        versions=found["versions"],
        device=found["device"],
        processes=fitted.trainer.world_size,
        git_commit=found["git_commit"],
        data=[data.manifest() | ({"licence": cfg.data_licence} if cfg.data_licence else {})],
        overlap={task: data.count_overlap(sentences) for task, sentences in suite.sentences().items()},
    )
    where_there_are_some = {
        "scores_before": fitted.scorer.scores_before,
        "averages": fitted.final.scores.members,
        "baselines": suite.baselines(),
        "not_as_published": suite.not_as_published,
    }
    return results | {name: value for name, value in where_there_are_some.items() if value}


@contextlib.contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Hydra makes the output folder before anything is checked; a mistyped command leaves none."""
    try:
        yield
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def main(cfg: DictConfig) -> None:
    logging.basicConfig(level=logging.WARNING if cfg.quiet else logging.INFO, format="%(message)s")
    with exit_statuses(failed=(TrainingFailed,)), no_empty_folder(Path(cfg.output_dir)):
        status = 1
        try:
            status = run(cfg)
        finally:
            close_wandb(status)
    if status:  # else a sweep goes on
        sys.exit(status)


if __name__ == "__main__":
    sys.argv[1:] = forced(sys.argv[1:])
    with exit_statuses(hydra=True):
        main()
