"""Train one sentence encoder: ``python train.py model=declutr data=openwebtext``.

Composes the config, checks that model and data fit, instantiates, trains, and writes what a run leaves behind. No model
is named here; what a run may be told is in ``configs/train.yaml``.
"""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from checks import check_checkpoint, check_choice, check_device, check_scoring, check_values, names_of
from command_line import exit_statuses, identity
from runs.failures import TrainingFailed
from runs.wandb_login import close_wandb

if TYPE_CHECKING:  # torch and Lightning take seconds to import: not before --help has been answered
    import pytorch_lightning as pl

    from contracts import DataModule, Results
    from evaluation.callback import ScoreCallback
    from evaluation.final import FinalScores
    from runs.telemetry import Telemetry

log = logging.getLogger("train")

LESS_IS_BETTER = ("train/loss", "train/mlm", "train/contrastive")


class Fitted(NamedTuple):
    """A trained run, the module holding the weights of its best checkpoint."""

    trainer: "pl.Trainer"
    scorer: "ScoreCallback"
    final: "FinalScores"
    telemetry: "Telemetry"


class Start(NamedTuple):
    """What rank 0 has decided for all ranks."""

    finished: bool
    checkpoint: str | None  # to continue from
    backbone: str | None


def run(cfg: DictConfig) -> int:
    """Exit status of a whole run: train or continue, score, export."""
    from runs.launcher import from_rank_zero

    hush_libraries()
    model_class = check_choice(cfg)
    check_values(cfg)
    check_device(cfg)
    follow_launcher(cfg)
    folder = Path(cfg.output_dir)
    loggers = make_loggers(cfg, folder)  # a missing login shows here
    asked = cfg.copy()
    start = Start(*from_rank_zero(lambda writer: prepare_folder(cfg, folder, model_class, writer)))
    if start.finished:
        made = f"results.json and {model_class.product}/ are there"
        log.info("%s is finished: %s. overwrite=true trains it again.", folder, made)
        return 0
    cfg.backbone = start.backbone
    data = hydra.utils.instantiate(cfg.data, _convert_="all")
    data.prepare_data()
    model = hydra.utils.instantiate(cfg.model, _convert_="all")
    if start.checkpoint:
        check_checkpoint(start.checkpoint, model)
    for logger in loggers:
        logger.log_hyperparams(OmegaConf.to_container(asked, resolve=True))
    fitted, status = fit(cfg, model, data, folder, start.checkpoint, loggers)
    if status == 0 and fitted.trainer.is_global_zero:
        finish(asked, model, data, folder, fitted)
    return status


def prepare_folder(cfg: DictConfig, folder: Path, model_class: Any, writer: bool) -> Start:
    """Make the folder this run's; ``backbone=tiny`` is written into it."""
    from runs.folder import claim_folder

    claim = claim_folder(folder, identity(cfg), resume=cfg.resume, overwrite=cfg.overwrite, writer=writer)
    if claim.finished:
        return Start(True, None, cfg.backbone)
    if writer:
        record_config(cfg, folder / ".hydra")
    backbone = write_tiny(cfg, folder / "backbone", model_class) if cfg.backbone == "tiny" else cfg.backbone
    return Start(False, claim.checkpoint, backbone)


def hush_libraries() -> None:
    """Their bars and hints would bury our own; what goes wrong still comes through."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="Found .* module.s. in eval mode at the start of training")
    warnings.filterwarnings("ignore", message="The number of training batches .* is smaller than the logging interval")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated")


def follow_launcher(cfg: DictConfig) -> None:
    """torchrun and srun have already decided how many processes there are, and Lightning must be told the same."""
    from runs.launcher import launched

    if found := launched():
        cfg.trainer.devices, cfg.trainer.num_nodes = found.per_node, found.processes // found.per_node
        if cfg.trainer.strategy == "auto":
            cfg.trainer.strategy = "ddp"


def record_config(cfg: DictConfig, folder: Path) -> None:
    """The three files that Hydra would have written, before it knew whose folder this is."""
    OmegaConf.save(cfg, folder / "config.yaml")
    OmegaConf.save(HydraConfig.get(), folder / "hydra.yaml")
    OmegaConf.save(HydraConfig.get().overrides.task, folder / "overrides.yaml")


def write_tiny(cfg: DictConfig, folder: Path, model_class: Any) -> str:
    """``backbone=tiny``: train the tokenizer, draw the weights, and write both as an ordinary folder; once."""
    from encoders.tiny import TINY_BACKBONES

    if not (folder / "config.json").is_file():
        data = hydra.utils.instantiate(cfg.data, _convert_="all")
        TINY_BACKBONES[model_class.tiny_backbone](folder, data.texts(), seed=cfg.seed, **cfg.tiny)
    return str(folder)


def fit(
    cfg: DictConfig,
    model: "pl.LightningModule",
    data: "DataModule",
    folder: Path,
    checkpoint: str | None,
    loggers: list[Any],
) -> tuple[Fitted, int]:
    """Train, and score the best checkpoint; also the exit status, 130 or 143 when a signal cut it short."""
    from evaluation.callback import ScoreCallback
    from evaluation.choice import choose_suites
    from evaluation.final import FinalScores
    from evaluation.task import Options
    from runs.checkpoints import RunCheckpoints
    from runs.progress import Progress
    from runs.reseed import Reseed
    from runs.signals import Interruption
    from runs.telemetry import Telemetry, is_last_step

    scoring = cfg.evaluation
    during = names_of(scoring.during) if scoring.every_n_steps else []
    options = Options(protocol=scoring.protocol)
    suites = choose_suites(model, data.held_out(), scoring.data_root, names_of(scoring.suite), during, options)
    check_scoring(cfg, *suites)
    scorer = ScoreCallback(*suites, scoring.every_n_steps, scoring.at_start, is_last_step)
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


def make_loggers(cfg: DictConfig, folder: Path) -> list[Any]:
    """metrics.csv always, and what ``logger=`` adds."""
    from runs.metrics_csv import MetricsCSV

    loggers: list[Any] = [MetricsCSV(folder)]
    if cfg.logger and "_target_" in cfg.logger:
        loggers.append(hydra.utils.instantiate(cfg.logger))
    return loggers


def finish(cfg: DictConfig, model: Any, data: "DataModule", folder: Path, fitted: Fitted) -> None:
    """What was trained, the curve, and results.json last: its presence says that the run is done."""
    from export.products import export_product
    from runs.curve import draw_curve
    from runs.progress import closing_table
    from runs.items import items_beside, write_items
    from runs.results import write_results

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


def collect_results(cfg: DictConfig, model: Any, data: "DataModule", fitted: Fitted) -> "Results":
    from contracts import RESULTS_VERSION, Results
    from runs.results import environment

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
        data=[data.manifest()],
        overlap={task: data.count_overlap(sentences) for task, sentences in suite.sentences().items()},
    )
    if fitted.scorer.scores_before:
        results["scores_before"] = fitted.scorer.scores_before
    if fitted.final.scores.members:
        results["averages"] = fitted.final.scores.members
    if baselines := suite.baselines():
        results["baselines"] = baselines
    return results


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
    with exit_statuses(hydra=True):
        main()
