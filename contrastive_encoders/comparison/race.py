"""Races: train several objectives on one backbone, each with the same measured budget.

A budget is a number of steps, examples, real tokens, or seconds of training. For the last three, a pilot run of a few
steps measures what a step of each objective costs, and ``max_steps`` is computed from it. So each learning rate
schedule covers exactly the run's budget. With a budget in seconds, the clock also ends a run that is slower than
expected.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.comparison.baselines import UNTRAINED, untrained_job
from contrastive_encoders.comparison.collect import CLOCK, FinishedRun, SkippedRun, labels_of, read_run, stage_costs
from contrastive_encoders.comparison.outputs import COMPARISON, ENTRIES, SELECTION_RUNS
from contrastive_encoders.comparison.run_scheduler import (
    CHECKPOINTS,
    WRONG_INPUT,
    Job,
    JobResult,
    remove_checkpoints,
    remove_matching,
    run_all,
)
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.progress import clock
from contrastive_encoders.core.runtime.worker_pool import InProcess, WorkerPool
from contrastive_encoders.io.manifest import CorruptFileError, is_finished, read_record, write_record
from contrastive_encoders.io.output_directory import claim_output_directory, differences

log = logging.getLogger(__name__)

BUDGETS = {"steps": "steps", "examples": "examples", "tokens": "real tokens", "seconds": "seconds of training"}
SPENT = {"examples": "examples", "tokens": "real_tokens"}
PILOT_STEPS = {"examples": 5, "tokens": 5, "seconds": 20}  # batches vary little in size, more in time
TRAINING_FILES = ("metrics.csv", "checkpoints", "results.json")  # files of a run or a stage that has started to train
TINY_FOLDER = "backbone"  # in a run with backbone=tiny, whose initial weights depend on the seed
RERUN = "Rerun the same command to try again."
PILOT_LOGS = 5  # the first steps are slower: time is measured after this many


class PilotFailedError(OutputError):
    """The pilot run of an arm failed, although its overrides are valid."""


class Race(NamedTuple):
    arms: dict[str, list[str]]  # label -> overrides
    seeds: list[int]
    budget: tuple[str, float]

    def budget_description(self) -> str:
        kind, amount = self.budget
        return f"Each run had a budget of {amount:,.0f} {BUDGETS[kind]}."


def plan(race: Mapping[str, Any], budget: Mapping[str, Any] | None, seeds: Sequence[int] | None, output: Path) -> Race:
    """Parse the arms, seeds, and budget of a race, and claim its output directory.

    Raises:
        InputError: the race has no arms, no seeds, or not exactly one budget.
    """
    arms, common = race.get("arms"), race.get("common") or []
    where = f"race={race.get('name', '?')}"
    if not isinstance(arms, dict) or not arms:
        expected = "a mapping of arm names to lists of overrides of `train`"
        raise InputError(location=where, key="race.arms", value=arms, expected=expected)
    for label, overrides in arms.items():
        if not isinstance(overrides, list):
            raise InputError(key=f"race.arms.{label}", value=overrides, expected="a list of overrides of `train`")
    amounts = budget or race.get("budget") or {}
    [(kind, amount)] = amounts.items() if isinstance(amounts, Mapping) and len(amounts) == 1 else [(None, None)]
    if kind not in BUDGETS or not isinstance(amount, int | float) or amount <= 0:
        raise InputError(
            key="budget", value=amounts, expected=f"one of {', '.join(BUDGETS)} and an amount, such as {{seconds: 600}}"
        )
    numbers = (race.get("seeds") or []) if seeds is None else seeds
    if not isinstance(numbers, Sequence) or not all(isinstance(seed, int) for seed in numbers):
        raise InputError(key="seeds", value=numbers, expected="a list of whole numbers, such as [1,2,3]")
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(key="seeds", value=list(numbers), expected="one or more distinct seeds")
    overrides = {str(label): [*map(str, common), *map(str, own)] for label, own in arms.items()}
    claim_output_directory("output", output, COMPARISON, ENTRIES)
    record = {
        "arms": overrides,
        "budget": dict(amounts),
        **({"prepare": race["prepare"]} if race.get("prepare") else {}),
    }
    _record_race(output / "race.json", record)
    return Race(overrides, list(numbers), (str(kind), float(amount)))


def _record_race(path: Path, race: dict[str, Any]) -> None:
    """Write the definition of the race to its output directory, which must not contain a different race.

    Seeds and arms may be added later. Arms that have not started to train may change.
    """
    started_arms = dict[str, Any]()
    if path.exists():
        try:
            before = read_record(path)
        except (OSError, CorruptFileError) as error:
            raise InputError(
                location=str(path),
                value=error,
                expected="an intact record of a race",
                hint="Choose a different output, or remove the file.",
            ) from error
        arms = before.get("arms", {})
        started_arms = {label: overrides for label, overrides in arms.items() if _has_started(path.parent, label, arms)}
        if not started_arms:
            before = {**race, "arms": {}}
            if arms != race["arms"] and UNTRAINED not in arms:
                remove_matching(path.parent / "runs", f"{UNTRAINED}-seed*")  # it may be of another encoder
        expected_arms = {label: started_arms.get(label, overrides) for label, overrides in race["arms"].items()}
        if changes := differences({**before, "arms": expected_arms}, race):
            raise InputError(
                key="output",
                value=path.parent,
                expected="a directory that contains no other race",
                hint=f"The directory contains a different race: {changes}. Choose a different output.",
            )
    write_record(path, {**race, "arms": {**started_arms, **race["arms"]}})


def _has_started(output: Path, label: str, labels: Iterable[str]) -> bool:
    """Return whether any run of an arm has started to train; from then on, the overrides of the arm must not change."""
    runs = [folder for folder in (output / "runs").glob("*/") if folder.name.rpartition("-seed")[0] == label]
    other_prefixes = tuple(f"{one}-" for one in labels if one.startswith(f"{label}-"))
    selection_runs = [
        one for one in (output / SELECTION_RUNS).glob(f"{label}-*/") if not one.name.startswith(other_prefixes)
    ]
    folders = (output / "pilots" / label, *runs, *selection_runs)
    return any(path.name in TRAINING_FILES for folder in folders for path in folder.rglob("*"))


def train_all(
    race: Race,
    output: Path,
    pool: InProcess | WorkerPool,
    quiet: bool = False,
    *,
    keep_checkpoints: bool = False,
    options: Sequence[str] = (),
    untrained: bool = False,
) -> list[JobResult]:
    """Train all runs of a race that are not finished, and return the results of those that failed.

    Each run gets the Hydra options and overrides in ``options``. If ``untrained``, the initial encoder of the first arm
    is also scored as an arm, before any arm is trained; if its weights are random, once for each seed.

    Raises:
        InputError: an arm cannot be trained with its overrides, or the initial encoder cannot be scored.
        PilotFailedError: a pilot run failed for another reason.
    """
    jobs, labels = list[Job](), dict[str, str]()
    if untrained and UNTRAINED not in race.arms:
        label, overrides = next(iter(race.arms.items()))
        job, *others = [untrained_job([*options, *overrides], seed, output / "runs") for seed in race.seeds]
        labels[job.name] = UNTRAINED
        failed = run_jobs(pool, [job], output, quiet, keep_checkpoints=keep_checkpoints)
        if failed and failed[0].status == WRONG_INPUT:
            expected = "overrides with which the untrained encoder can be scored"
            raise InputError(key=f"race.arms.{label}", expected=expected, hint=failed[0].output_tail)
        log_failures(failed)  # the race is complete without the untrained encoder
        if not failed and not read_run(job.folder).results["scores"]:
            raise InputError(
                key="race.data_root",
                value=None,
                expected="the directory of the evaluation tables, because race.tasks is null",
            )
        if (job.folder / TINY_FOLDER).exists():
            labels |= dict.fromkeys((one.name for one in others), UNTRAINED)
            log_failures(run_jobs(pool, others, output, quiet, keep_checkpoints=keep_checkpoints))
    steps = {
        label: budget_overrides(label, [*options, *overrides], race, output, pool)
        for label, overrides in race.arms.items()
    }
    for seed in race.seeds:  # seed by seed, so that an interrupted race has runs of all arms
        for label, overrides in race.arms.items():
            name = f"{label}-seed{seed}"
            run_overrides = [*options, *overrides, *steps[label], f"seed={seed}", "quiet=true"]
            labels[name] = label
            jobs.append(Job(name, run_overrides, output / "runs" / name))
    labels = {**labels_of(output / "runs"), **labels}  # includes the labels of other seeds, from an earlier command
    write_record(output / "runs" / "labels.json", labels)
    failed = run_jobs(pool, jobs, output, quiet, keep_checkpoints=keep_checkpoints)
    log_failures(failed)
    return failed


def log_failures(failed: Iterable[JobResult]) -> None:
    for result in failed:
        log.warning("%s %s: %s", result.name, "was refused" if result.refused else "failed", result.output_tail)


def failed_runs(failed: Iterable[JobResult]) -> list[SkippedRun]:
    """Return the runs that failed, for a report, with the reason or the advice to rerun."""
    return [
        SkippedRun(
            result.folder,
            f"{result.name} was refused: {' '.join(result.output_tail.split())}"
            if result.refused
            else f"{result.name} failed: {''.join(result.output_tail.splitlines()[-1:])} {RERUN}",
        )
        for result in failed
        if result.folder is not None
    ]


def run_jobs(
    pool: InProcess | WorkerPool, jobs: Sequence[Job], output: Path, quiet: bool, *, keep_checkpoints: bool
) -> list[JobResult]:
    """Train the jobs that are not finished, and return the results of those that failed."""
    progress = _Progress(quiet, sum(not is_finished(job.folder) for job in jobs))

    def end(job: Job, result: JobResult) -> None:
        if result.finished and not keep_checkpoints:
            remove_matching(job.folder, CHECKPOINTS)
        progress.log_end(result)

    results = run_all(pool, jobs, output / "runs.jsonl", end, at_start=progress.log_start)
    if not keep_checkpoints:
        remove_checkpoints(jobs)
    return [result for result in results if not result.finished]


class _Progress:
    """Logger of a race's progress, which reports the start and end of each run, the number of runs, and the estimated
    remaining time.
    """

    def __init__(self, quiet: bool, total: int) -> None:
        self.quiet, self.total = quiet, total
        self.started = self.finished = 0
        self.start_time = time.monotonic()

    def log_start(self, job: Job) -> None:
        self.started += 1
        elapsed = time.monotonic() - self.start_time
        remaining = (
            f", about {clock(elapsed / self.finished * (self.total - self.finished))} left" if self.finished else ""
        )
        if not self.quiet:
            log.info("run %d of %d: %s%s", self.started, self.total, job.name, remaining)

    def log_end(self, result: JobResult) -> None:
        self.finished += 1
        if not self.quiet:
            log.info("%s: %s in %.0f s", result.name, result.describe(), result.seconds)


def budget_overrides(
    label: str, overrides: list[str], race: Race, output: Path, pool: InProcess | WorkerPool
) -> list[str]:
    """Return the overrides that limit a run of an arm to its budget. A pilot run measures the cost of a step.

    Raises:
        InputError: the arm cannot be trained with its overrides.
        PilotFailedError: the pilot run failed for another reason.
    """
    kind, amount = race.budget
    if kind == "steps":
        return [f"max_steps={round(amount)}"]
    folder = output / "pilots" / label
    pilot = pilot_overrides(PILOT_STEPS[kind], PILOT_LOGS, race.seeds[0])
    job = Job(f"pilot of {label}", [*overrides, *pilot], folder)
    [result] = run_all(
        pool, [job], output / "runs.jsonl", at_start=lambda job: log.info("%s: %d steps", job.name, PILOT_STEPS[kind])
    )
    if result.refused:
        expected = "overrides of a training run that succeeds"
        raise InputError(key=f"race.arms.{label}", expected=expected, hint=result.output_tail)
    if not result.finished:
        raise PilotFailedError(f"race.arms.{label}: the pilot run failed. {RERUN}\n{result.output_tail}")
    remove_matching(folder, CHECKPOINTS)
    remove_matching(folder, "encoder")
    run = read_run(folder)
    spent = run.results["cost"]
    parts = stage_costs(run.results)  # each stage trains for max_steps
    stages = len(parts)
    step_cost = stages * amount_of_a_step(run, kind)
    steps = max(1, round(amount / step_cost))
    log.info("%s: %.3g %s per step, %s", label, step_cost, BUDGETS[kind], count_of(steps, "step"))
    if kind != "seconds":
        return [f"max_steps={steps}"]
    shares = [(f"stages.{name}." if name else "", part["wall_seconds"] / spent["wall_seconds"]) for name, part in parts]
    return [f"max_steps={steps}", *(f"{prefix}max_time={_clock(amount * share)}" for prefix, share in shares)]


def pilot_overrides(steps: int, log_every: int, seed: int) -> list[str]:
    """Return the overrides of a pilot run, which measures the cost of a step and is not scored."""
    return [
        f"max_steps={steps}",
        f"log_every_n_steps={log_every}",
        f"seed={seed}",
        "quiet=true",
        "evaluation.data_root=null",
        "evaluation.custom_tasks=null",
        "evaluation.every_n_steps=null",
        "evaluation.at_start=false",
        "evaluation.compare_with_teacher=false",
        "monitor=null",
    ]


def amount_of_a_step(run: FinishedRun, kind: str) -> float:
    """Return the cost of one training step of a run, in the unit of the budget.

    The cost in seconds excludes the steps before the first logged step, which are slower.
    """
    spent = run.results["cost"]
    timed = [(row["step"], row[CLOCK]) for row in run.rows if CLOCK in row]
    if kind in SPENT:
        return spent[SPENT[kind]] / max(1, spent["steps"])  # type: ignore[literal-required]
    if len(stage_costs(run.results)) > 1 or len(timed) < 2:
        return spent["wall_seconds"] / max(1, spent["steps"])
    (first, before), (last, after) = timed[0], timed[-1]
    return (after - before) / max(1.0, last - first)


def _clock(seconds: float) -> str:
    total = max(1, round(seconds))
    return f"'{total // 86400:02}:{total // 3600 % 24:02}:{total // 60 % 60:02}:{total % 60:02}'"
