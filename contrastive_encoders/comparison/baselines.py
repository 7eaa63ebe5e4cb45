"""Baselines of a comparison: the untrained encoder, and, on retrieval tasks, TF-IDF and BM25."""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_encoders.comparison.arms import Arm
from contrastive_encoders.comparison.collect import FinishedRun
from contrastive_encoders.comparison.run_scheduler import Job
from contrastive_encoders.core import Results, RunCost
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.statistics.headline import RankingMetric

log = logging.getLogger(__name__)

UNTRAINED, TFIDF, BM25 = "untrained", "TF-IDF", "BM25"
BASELINES = (TFIDF, BM25)  # arms without an encoder
STAGE_OVERRIDE = re.compile(r"\+{0,2}stages\.[^.=]+\.([^=]+)=")


def untrained_job(overrides: Sequence[str], seed: int, runs: Path) -> Job:
    """Return a job that trains one step at learning rate 0, so that its scores are those of the arm's initial encoder.

    Overrides of single stages that set the same keys are removed, because they would take precedence.
    """
    name = f"{UNTRAINED}-seed{seed}"
    fixed = {
        "max_steps": "1",
        "model.lr": "0",
        "monitor": "null",
        "early_stopping": "null",
        "evaluation.every_n_steps": "null",
        "evaluation.at_start": "false",  # the scores at the end are the same
        "evaluation.compare_with_teacher": "false",
        "seed": str(seed),
        "quiet": "true",
    }
    arm_overrides = [
        override for override in overrides if (match := STAGE_OVERRIDE.match(override)) is None or match[1] not in fixed
    ]
    return Job(name, [*arm_overrides, *(f"{key}={value}" for key, value in fixed.items())], runs / name)


def tfidf_arm(arms: Sequence[Arm], headline: RankingMetric) -> Arm | None:
    """Return TF-IDF as an arm, or None if no run contains TF-IDF scores for all tasks of the headline score.

    Every run with retrieval tasks also scores TF-IDF.
    """
    for arm in arms:
        for run in arm.runs:
            scores = {_cosine_name(name): score for name, score in run.results.get("baselines", {}).items()}
            if all(task in scores for task in headline.scores):
                return Arm(TFIDF, [_as_run(run, scores, TFIDF)], {})
    return None


def bm25_arm(arms: Sequence[Arm], headline: RankingMetric, scores: Mapping[str, Any]) -> Arm | None:
    """Return BM25 as an arm, or None if the BM25 score of any task of the headline score is missing.

    Args:
        arms: arms of the comparison.
        headline: score that ranks the arms.
        scores: scores of BM25 (`statistics.bootstrap.Estimate`) on the headline's tasks.
    """
    estimates = {_cosine_name(name): estimate for name, estimate in scores.items()}
    if any(name not in estimates for name in headline.scores):
        return None
    run = _as_run(arms[0].runs[0], {name: estimate.value for name, estimate in estimates.items()}, BM25)
    if run.items is not None:
        replicates = {name: np.asarray(estimate.replicates_R) for name, estimate in estimates.items()}
        values = {name: np.asarray(estimate.values_N) for name, estimate in estimates.items()}
        run = run._replace(items=run.items._replace(cosines={}, replicates=replicates, values=values))
    return Arm(BM25, [run], {})


def _cosine_name(name: str) -> str:
    """Convert the name of a lexical baseline's score to the name of an encoder's score: ``pydocs/tfidf/mrr`` to
    ``pydocs/cosine/mrr``.
    """
    return ScoreName.parse(name).with_protocol("cosine")


def _as_run(run: FinishedRun, scores: dict[str, float], label: str) -> FinishedRun:
    if (items := run.items) is not None:
        replicates, values = (
            {_cosine_name(name): one for name, one in arrays.items() if ScoreName.parse(name).protocol == "tfidf"}
            for arrays in (items.replicates, items.values)
        )
        items = items._replace(cosines={}, replicates=replicates, values=values)
    no_cost = RunCost(steps=0, examples=0, real_tokens=0, padded_tokens=0, wall_seconds=0.0, peak_memory_bytes=0)
    results: Results = {
        **run.results,
        "objective": label,
        "scores": scores,
        "cost": no_cost,
        "recipe": {},
        "overlap": {},
        "intervals": {},
        "best_step": 0,
    }
    for entry in ("stages", "changes", "scores_before", "averages", "verdict"):
        results.pop(entry, None)  # type: ignore[misc]
    return run._replace(results=results, rows=[], items=items, label=label)
