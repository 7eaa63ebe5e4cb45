"""Selection of the tasks that are evaluated during and after training, and of the monitored score."""

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from contrastive_encoders.core import DataModule, PairScorer, Writer
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.encoders.loading.load import load_encoder_of
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.evaluation.callback import Suites, choose_suites
from contrastive_encoders.evaluation.catalog import is_task, listing_hint, task_files
from contrastive_encoders.evaluation.custom_tasks.resolve import resolve_custom_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.reranking import RerankingScorer
from contrastive_encoders.evaluation.task import Task
from contrastive_encoders.evaluation.tasks.retrieval import RetrievalTask
from contrastive_encoders.training.checks import check_scoring, names_of
from contrastive_encoders.training.resolve import ResolvedRun
from contrastive_encoders.training.run_config import Evaluation

DEFAULT_SUITE = Evaluation().suite

log = logging.getLogger(__name__)


def choose(run: ResolvedRun, model: pl.LightningModule, data: DataModule) -> tuple[ResolvedRun, Suites]:
    """Return the run, with its evaluation keys adapted to the available tasks, and two suites: one for evaluation
    before and after training, and one for evaluation during training.

    Raises:
        InputError: a requested or monitored score is not available.
    """
    evaluation, held_out = run.evaluation, list[Any](data.held_out())
    config = EvaluateConfig(protocol=evaluation.protocol, allow_targets=list(run.allow_targets))
    if not isinstance(model, Writer):
        own = own_suite(run, config)
        monitored, added = ScoreName.parse(run.monitor or "").full_task, [task.name for task in own]
        held_out_names = [task.name for task in held_out]
        if "evaluation.every_n_steps" in run.explicit_keys or monitored in held_out_names:
            added = [*held_out_names, *added]
        held_out += own
        if added and "evaluation.during_training" not in run.explicit_keys:
            usual = [
                name
                for name in names_of(evaluation.during_training)
                if evaluation.data_root is not None or name == monitored or not is_task(name)
            ]
            run = _with_evaluation(run, during_training=list(dict.fromkeys([*usual, *added])))
        run = _without_tables(run, {task.name for task in held_out})
    evaluation = run.evaluation
    during = names_of(evaluation.during_training) if evaluation.every_n_steps else []
    sizes = model.sizes if isinstance(model, Objective) else []
    suites = choose_suites(model, held_out, evaluation.data_root, names_of(evaluation.suite), during, config, sizes)
    if isinstance(model, PairScorer):
        suites = reranked(suites, run)
    check_scoring(run, *suites)
    return run, suites


def reranked(suites: Suites, run: ResolvedRun) -> Suites:
    """Return the suites on which a reranker is evaluated: the retrieval tasks of the run. Other tasks are skipped."""
    settings: Any = run.model
    tasks = [task for task in suites.final if isinstance(task, RetrievalTask) and settings.retriever]
    if others := [task.name for task in suites.final if task not in tasks]:
        why = (
            "the model reranks documents for queries only"
            if settings.retriever
            else "model.retriever, which retrieves the documents to rerank, is not set"
        )
        log.warning("These tasks are not evaluated, because %s: %s.", why, ", ".join(others))
    if tasks:
        load_encoder_of(
            "model.retriever", settings.retriever, "cpu"
        )  # raises an error before the training if it is not an encoder
    device = run.device
    final = RerankingScorer(
        tasks, lambda: load_encoder_of("model.retriever", settings.retriever, device), settings.rerank_top
    )
    during = {task.name for task in suites.during}
    return Suites(final, final.subset(task for task in tasks if task.name in during))


def own_suite(run: ResolvedRun, config: EvaluateConfig) -> list[Task]:
    """Read the tasks that ``evaluation.custom_tasks`` defines.

    Raises:
        InputError: a file of a task does not exist or is damaged.
    """
    return [
        task
        for own in resolve_custom_tasks(run.evaluation.custom_tasks, "evaluation.custom_tasks")
        for task in own.read(config)
    ]


def _with_evaluation(run: ResolvedRun, **changed: Any) -> ResolvedRun:
    return replace(run, evaluation=replace(run.evaluation, **changed))


def _without_tables(run: ResolvedRun, held_out: Collection[str]) -> ResolvedRun:
    """Remove tasks from ``evaluation.during_training`` if their tables are missing, and return the changed run.

    If only the texts in SentEval's format are missing, the variant with unmodified texts is used. Tasks that the user
    requested are kept.
    """
    evaluation, unscored = run.evaluation, ""
    by_steps = "evaluation.every_n_steps" in run.explicit_keys and not run.monitor
    is_explicit = by_steps or not {"monitor", "evaluation.during_training"}.isdisjoint(run.explicit_keys)
    during = [] if is_explicit or not evaluation.every_n_steps else names_of(evaluation.during_training)
    table_tasks = [name for name in during if is_task(name) and name not in held_out]
    if evaluation.data_root is None:
        if table_tasks and run.monitor and ScoreName.parse(run.monitor).full_task in table_tasks:
            run = replace(run, monitor=None)
            unscored = f"{', '.join(table_tasks)} during training, so best.ckpt is the last checkpoint"
        rest = [name for name in names_of(evaluation.during_training) if name not in table_tasks]
        run = _with_evaluation(run, during_training=rest)
        if table_tasks and not rest:
            run = _with_evaluation(run, every_n_steps=None)
        suite = names_of(evaluation.suite)
        if held_out and suite == [DEFAULT_SUITE] and "evaluation.suite" not in run.explicit_keys:
            suite = []  # there are other scores, and the tables were not requested
        if names := ", nor of ".join(part for part in (", ".join(suite), unscored) if part):
            log.info("evaluation.data_root is not set: no scores of %s.", names)
        return run
    for name in table_tasks:
        if (plain := available_variant(evaluation.data_root, name)) != name:
            log.warning(
                "%s has no texts in SentEval's format in %s; %s is evaluated instead, whose scores differ from the "
                "published protocol. %s",
                *(name, evaluation.data_root, plain, listing_hint(evaluation.data_root)),
            )
            run = _with_evaluation(
                run, during_training=[plain if one == name else one for one in names_of(run.evaluation.during_training)]
            )
            monitor = ScoreName.parse(run.monitor or "")
            if monitor.full_task == name:
                run = replace(run, monitor=monitor.without_form())
    return run


def available_variant(root: str, name: str) -> str:
    """Return the name of the task, or of its variant with unmodified texts if the texts in SentEval's format are
    missing.
    """
    plain = ScoreName.parse(name).without_form()
    return plain if is_task(name) and not _has_files(root, name) and _has_files(root, plain) else name


def _has_files(root: str, name: str) -> bool:
    return all(path.is_file() for path in task_files(Path(root), name))
