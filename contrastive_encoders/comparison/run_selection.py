"""Select the runs to compare."""

import shlex
from collections.abc import Sequence

from contrastive_encoders.comparison.arms import recipe_key
from contrastive_encoders.comparison.collect import FinishedRun, SkippedRun


def select(runs: Sequence[FinishedRun], headline: str | None) -> tuple[list[FinishedRun], list[SkippedRun]]:
    """Return the runs to compare, in their given order, and the skipped runs with the reason for skipping each.

    A copy of a run is skipped, since it would count as another seed. If no run has the headline, all runs are kept, and
    `contrasts.choose_ranking_metric` raises the error.
    """
    skipped = list[SkippedRun]()
    scored = list[FinishedRun]()
    for run in runs:
        if run.results["scores"]:
            scored.append(run)
        else:
            skipped.append(SkippedRun(run.path, f"{run.path}: the run has no scores. Run {_evaluation(run)}."))
    if headline is not None and any(headline in run.results["scores"] for run in scored):
        others = [run for run in scored if headline not in run.results["scores"]]
        skipped += [SkippedRun(run.path, f"{run.path}: the run has no score {headline}.") for run in others]
        scored = [run for run in scored if headline in run.results["scores"]]
    longest = dict[tuple[str, int], FinishedRun]()
    for run in scored:
        key = (recipe_key(run), run.seed)
        if key not in longest or _steps(run) > _steps(longest[key]):
            longest[key] = run
    selected = list[FinishedRun]()
    for run in scored:
        other = longest[recipe_key(run), run.seed]
        if other is run:
            selected.append(run)
        else:
            reason = f"{run.path}: the run has the same recipe and seed {run.seed} as {other.path}, which is used."
            skipped.append(SkippedRun(run.path, reason))
    return selected, skipped


def _steps(run: FinishedRun) -> float:
    return run.results["cost"]["steps"]


def _evaluation(run: FinishedRun) -> str:
    overrides = shlex.join([f"encoder={run.path}", "suite=sts", "data_root=EVAL", "output=FILE.json"])
    return f"contrastive-encoders evaluate {overrides}, and add FILE.json to runs"
