"""Select the value of a hyperparameter, such as the learning rate, for each arm of a race, by scores that are not
reported.

Each arm is trained once with each of its values, with the race's budget and first seed. The value with the
best score on the tasks for selection is kept.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.comparison.collect import read_run
from contrastive_encoders.comparison.outputs import SELECTION_FILE, SELECTION_RUNS
from contrastive_encoders.comparison.race import PilotFailedError, Race, budget_overrides, log_failures, run_jobs
from contrastive_encoders.comparison.run_scheduler import WRONG_INPUT, Job, JobResult
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.runtime.worker_pool import InProcess, WorkerPool
from contrastive_encoders.io.manifest import read_record, write_record

log = logging.getLogger(__name__)


class HyperparameterChoice(NamedTuple):
    """The hyperparameter ``key``, its candidate values for each arm, and the score by which a value is selected.

    ``overrides`` are further overrides of the selection runs.
    """

    key: str
    values: dict[str, list[Any]]
    score: str
    overrides: list[str]


def selection_of(race: Mapping[str, Any], where: str) -> HyperparameterChoice | None:
    """Parse the ``choose`` entry of a race. Return None if there is no such entry.

    Raises:
        InputError: ``choose`` lacks one of its keys, or an arm has no values.
    """
    selection = race.get("choose")
    if selection is None:
        return None
    if not isinstance(selection, Mapping) or {"key", "values", "score"} - set(selection):
        raise InputError(
            location=where,
            key="choose",
            value=selection,
            expected="a mapping with the keys `key`, `values`, and `score`",
        )
    values = {str(label): list(some) for label, some in selection["values"].items()}
    for label in race.get("arms") or {}:
        if not values.get(str(label)):
            raise InputError(location=where, key="choose.values", expected=f"a list of values for the arm {label}")
    overrides = [str(override) for override in selection.get("words") or []]
    return HyperparameterChoice(str(selection["key"]), values, str(selection["score"]), overrides)


def choose(
    choice: HyperparameterChoice,
    race: Race,
    output: Path,
    pool: InProcess | WorkerPool,
    quiet: bool = False,
    options: Sequence[str] = (),
    *,
    keep_checkpoints: bool = False,
) -> tuple[Race, list[JobResult]]:
    """Train each arm once with each candidate value, unless it is already trained, and select the best value for each
    arm.

    Return the race, whose arms contain the selected values, and the runs that failed.

    An arm is left out if all of its runs failed. An arm that was already trained with a value keeps it.

    Raises:
        InputError: no arm can be trained with its overrides, or a run lacks the score.
        OutputError: no arm could be trained, but the same command may succeed.
    """
    jobs, folders, failed = list[Job](), dict[str, dict[Any, Path]](), list[JobResult]()
    for label, overrides in race.arms.items():
        try:
            arm_overrides = [*options, *overrides, *budget_overrides(label, [*options, *overrides], race, output, pool)]
        except (InputError, PilotFailedError) as error:
            status = WRONG_INPUT if isinstance(error, InputError) else 1
            folder = output / "pilots" / label
            failed.append(JobResult(f"pilot of {label}", status, 0.0, 1, str(error), folder=folder))
            continue
        for value in choice.values[label]:
            folder = output / SELECTION_RUNS / f"{label}-{value}"
            arguments = [
                *arm_overrides,
                *choice.overrides,
                f"{choice.key}={value}",
                f"seed={race.seeds[0]}",
                "quiet=true",
            ]
            jobs.append(Job(f"{label} {choice.key}={value}", arguments, folder))
            folders.setdefault(label, {})[value] = folder

    failed += run_jobs(pool, jobs, output, quiet, keep_checkpoints=keep_checkpoints)
    log_failures(failed)
    failed_names = {result.name for result in failed}
    previous_choice = read_record(output / SELECTION_FILE)["chosen"] if (output / SELECTION_FILE).exists() else {}
    arms, tried, chosen = dict[str, list[str]](), dict[str, dict[str, float]](), dict[str, Any]()
    for label, overrides in race.arms.items():
        scores = {
            value: _score(folder, choice.score)
            for value, folder in folders.get(label, {}).items()
            if f"{label} {choice.key}={value}" not in failed_names
        }
        if not scores:
            continue
        best = max(scores, key=lambda value: scores[value])
        if label in previous_choice and any((output / "runs").glob(f"{label}-seed*")):
            best = previous_choice[label]
        chosen[label] = best
        arms[label] = [*overrides, f"{choice.key}={best}"]
        tried[label] = {str(value): score for value, score in scores.items()}
        log.info("%s: %s=%s, %s %.2f", label, choice.key, best, choice.score, scores[best])
    if not arms:
        hint = f"{failed[0].name}: {failed[0].output_tail}"
        if not all(result.refused for result in failed):
            raise OutputError(f"race: no arm could be trained. {hint}")
        raise InputError(location="race", expected="at least one arm that can be trained", hint=hint)
    write_record(output / SELECTION_FILE, {"key": choice.key, "score": choice.score, "values": tried, "chosen": chosen})
    return race._replace(arms=arms), failed


def _score(folder: Path, name: str) -> float:
    scores = read_run(folder).results["scores"]
    if name not in scores:
        expected = f"a score of {folder} ({', '.join(scores) or 'none'})"
        raise InputError(key="choose.score", value=name, expected=expected)
    return scores[name]
