"""What a run scores while it trains and at its end; a preset's choice gives way to the tables that are there."""

import logging
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from command.keys import of_defaults
from command.settings import resolved
from contracts import DataModule, Writer
from encoders.objective import Objective
from evaluation.callback import Suites, choose_suites
from evaluation.catalogue import files, is_task
from evaluation.own.words import own_tasks
from evaluation.task import Options, Task
from evaluation.tsv import SENTEVAL
from training.checks import check_scoring, names_of

USUAL = "sts"  # the suite of configs/train.yaml

log = logging.getLogger(__name__)


def choose(cfg: DictConfig, model: pl.LightningModule, data: DataModule) -> Suites:
    """Return what is scored at the end and while training; ``cfg`` then says what is really monitored.

    Raises:
        InputError: what is to be scored or monitored is not there.
    """
    scoring, held_out = cfg.evaluation, list[Any](data.held_out())
    options = of_defaults(Options, "evaluation", protocol=scoring.protocol, allow_targets=cfg.allow_targets)
    if not isinstance(model, Writer):
        own = own_suite(cfg, options)
        held_out += own
        if own and not _said("evaluation.during"):
            monitored = (cfg.monitor or "").partition("/")[0]
            usual = [
                name
                for name in names_of(scoring.during)
                if scoring.data_root is not None or name == monitored or not is_task(name)
            ]
            scoring.during = list(dict.fromkeys([*usual, *(task.name for task in own)]))
        _give_way(cfg, {task.name for task in held_out})
    during = names_of(scoring.during) if scoring.every_n_steps else []
    sizes = model.sizes if isinstance(model, Objective) else []
    suites = choose_suites(model, held_out, scoring.data_root, names_of(scoring.suite), during, options, sizes)
    check_scoring(cfg, *suites)
    return suites


def own_suite(cfg: DictConfig, options: Options) -> list[Task]:
    """The tasks of the user's own.

    Raises:
        InputError: one is not there or damaged.
    """
    words = resolved(cfg.evaluation.get("tasks"))
    return [task for own in own_tasks(words, "evaluation.tasks") for task in own.read(options)]


def _give_way(cfg: DictConfig, held_out: Collection[str]) -> None:
    """What a preset scores while training is left out without tables, and where they lack SentEval's form of it, the
    plain one is taken; what the command line asks for stays.
    """
    scoring, unscored = cfg.evaluation, ""
    asked = _said("monitor") or _said("evaluation.during") or (_said("evaluation.every_n_steps") and not cfg.monitor)
    during = [] if asked or not scoring.every_n_steps else names_of(scoring.during)
    of_tables = [name for name in during if is_task(name) and name not in held_out]
    if scoring.data_root is None:
        if of_tables and cfg.monitor and cfg.monitor.partition("/")[0] in of_tables:
            cfg.monitor = None
            unscored = f"{', '.join(of_tables)} while training; best.ckpt is the last one"
        scoring.during = [name for name in names_of(scoring.during) if name not in of_tables]
        if of_tables and not scoring.during:
            scoring.every_n_steps = None
        suite = names_of(scoring.suite)
        if held_out and suite == [USUAL] and not _said("evaluation.suite"):
            suite = []  # there is something to score, and nobody asked for the tables
        if said := ", nor ".join(part for part in (", ".join(suite), unscored) if part):
            log.info("evaluation.data_root is not set: no scores of %s.", said)
        return
    for name in of_tables:
        if (plain := in_form_that_is_there(scoring.data_root, name)) != name:
            log.warning(
                "%s: its texts in SentEval's form are not in %s, so %s is scored in its place, which is not what was "
                "published. python -m evaluation action=fetch suite=%s data_root=DIR gets them.",
                *(name, scoring.data_root, plain, name),
            )
            scoring.during = [plain if one == name else one for one in names_of(scoring.during)]
            cfg.monitor = re.sub(f"^{name}/", f"{plain}/", cfg.monitor) if cfg.monitor else None


def in_form_that_is_there(root: str, name: str) -> str:
    """Return the task, or where it lacks its texts in SentEval's form, the same with them as they are."""
    plain = name.removesuffix(SENTEVAL)
    return plain if is_task(name) and not _is_there(root, name) and _is_there(root, plain) else name


def _said(key: str) -> bool:
    """Whether the command line gives it, for the run or a stage."""
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return any(re.match(rf"\+*(stages\.[^.=]+\.)?{re.escape(key)}=", word) for word in words)


def _is_there(root: str, name: str) -> bool:
    return all(path.is_file() for path in files(Path(root), name))
