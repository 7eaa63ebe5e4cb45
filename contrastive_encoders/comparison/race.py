"""Races: several objectives are trained on one backbone, each with the same measured budget.

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
from contrastive_encoders.comparison.collect import CLOCK, FinishedRun, in_turn, labels_of, read_run
from contrastive_encoders.comparison.outputs import CHOOSING, COMPARISON, ENTRIES
from contrastive_encoders.comparison.run_scheduler import (
    CHECKPOINTS,
    WRONG_INPUT,
    Job,
    JobResult,
    remove_below,
    remove_checkpoints,
    run_all,
)
from contrastive_encoders.core import InputError
from contrastive_encoders.io.manifest import CorruptFileError, is_finished, read_record, write_record
from contrastive_encoders.io.output_directory import claim_output_directory, differences
from contrastive_encoders.reports.progress import clock
from contrastive_encoders.runtime.worker_pool import InProcess, WorkerPool

log = logging.getLogger(__name__)

BUDGETS = {"steps": "steps", "examples": "examples", "tokens": "real tokens", "seconds": "seconds of training"}
SPENT = {"examples": "examples", "tokens": "real_tokens"}
PILOT_STEPS = {"examples": 5, "tokens": 5, "seconds": 20}  # batches vary little in size, more in time
KEPT = ("metrics.csv", "checkpoints", "results.json")  # files of a run or a stage that has started to train
PILOT_LOGS = 5  # the first steps are slower: time is measured after this many


class Race(NamedTuple):
    arms: dict[str, list[str]]  # label -> overrides
    seeds: list[int]
    budget: tuple[str, float]

    def budget_said(self) -> str:
        kind, amount = self.budget
        return f"Each run had a budget of {amount:,.0f} {BUDGETS[kind]}."


def plan(race: Mapping[str, Any], budget: Mapping[str, Any] | None, seeds: Sequence[int] | None, output: Path) -> Race:
    """Read the race: its arms, seeds, and budget.

    Raises:
        InputError: the race has no arms, no seeds, or not exactly one budget.
    """
    arms, common = race.get("arms"), race.get("common") or []
    where = f"race={race.get('name', '?')}"
    if not isinstance(arms, dict) or not arms or not all(isinstance(words, list) for words in arms.values()):
        raise InputError(f"{where}: wanted arms, a mapping of a name to overrides of `train`.")
    amounts = budget or race.get("budget") or {}
    [(kind, amount)] = amounts.items() if isinstance(amounts, Mapping) and len(amounts) == 1 else [(None, None)]
    if kind not in BUDGETS or not isinstance(amount, int | float) or amount <= 0:
        raise InputError(
            key="budget", value=amounts, expected=f"one of {', '.join(BUDGETS)} and an amount, such as {{seconds: 600}}"
        )
    numbers = seeds or race.get("seeds") or []
    if not isinstance(numbers, Sequence) or not all(isinstance(seed, int) for seed in numbers):
        raise InputError(key="seeds", value=numbers, expected="a list of whole numbers, such as [1,2,3]")
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(f"seeds={list(numbers)}: wanted one or more numbers, each once.")
    words = {str(label): [*map(str, common), *map(str, own)] for label, own in arms.items()}
    claim_output_directory("output", output, COMPARISON, ENTRIES)
    asked = {"arms": words, "budget": dict(amounts), **({"prepare": race["prepare"]} if race.get("prepare") else {})}
    _keep(output / "race.json", asked)
    return Race(words, list(numbers), (str(kind), float(amount)))


def _keep(path: Path, asked: dict[str, Any]) -> None:
    """Record the race in its folder, which contains one race only.

    More seeds and arms may be added later. Arms that have not started to train may change.
    """
    there = dict[str, Any]()
    if path.exists():
        try:
            before = read_record(path)
        except (OSError, CorruptFileError) as error:
            raise InputError(f"{path}: {error}. Choose another output, or remove the file.") from error
        arms = before.get("arms", {})
        there = {label: words for label, words in arms.items() if _is_begun(path.parent, label, arms)}
        if not there:
            before = {**asked, "arms": {}}
            if arms != asked["arms"] and UNTRAINED not in arms:
                remove_below(path.parent / "runs", f"{UNTRAINED}-seed*")  # it may be of another encoder
        known = {label: there.get(label, words) for label, words in asked["arms"].items()}
        if found := differences({**before, "arms": known}, asked):
            raise InputError(f"output={path.parent} holds another race: {found}. Choose another output.")
    write_record(path, {**asked, "arms": {**there, **asked["arms"]}})


def _is_begun(output: Path, label: str, labels: Iterable[str]) -> bool:
    """Return whether a run of this arm has written anything, so that it would refuse other overrides."""
    runs = [folder for folder in (output / "runs").glob("*/") if folder.name.rpartition("-seed")[0] == label]
    longer = tuple(f"{one}-" for one in labels if one.startswith(f"{label}-"))
    tried = [one for one in (output / CHOOSING).glob(f"{label}-*/") if not one.name.startswith(longer)]
    folders = (output / "pilots" / label, *runs, *tried)
    return any(path.name in KEPT for folder in folders for path in folder.rglob("*"))


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
    """Train the runs that are not finished, each with the Hydra ``options``, and return the failed ones.

    If ``untrained``, the initial encoder of the first arm is also scored as an arm, before any arm is trained.

    Raises:
        InputError: the training refused an arm, or the initial encoder cannot be scored.
    """
    jobs, labels = list[Job](), dict[str, str]()
    if untrained and UNTRAINED not in race.arms:
        label, words = next(iter(race.arms.items()))
        job = untrained_job([*options, *words], race.seeds[0], output / "runs")
        labels[job.name] = UNTRAINED
        failed = run_jobs(pool, [job], output, quiet, keep_checkpoints=keep_checkpoints)
        if failed and failed[0].status == WRONG_INPUT:
            raise InputError(f"race: the untrained encoder of arm {label} is refused. {failed[0].said}")
        warn_of_failures(failed)  # the race is complete without the untrained encoder
        if not failed and not read_run(job.folder).results["scores"]:
            raise InputError(
                key="race.data_root",
                value=None,
                expected="the directory of the tables that score the runs, if race.tasks is null",
            )
    steps = {label: steps_of(label, [*options, *words], race, output, pool) for label, words in race.arms.items()}
    for seed in race.seeds:  # seed by seed, so that an interrupted race has runs of all arms
        for label, words in race.arms.items():
            name = f"{label}-seed{seed}"
            own = [*options, *words, *steps[label], f"seed={seed}", "quiet=true"]
            labels[name] = label
            jobs.append(Job(name, own, output / "runs" / name))
    labels = {**labels_of(output / "runs"), **labels}  # includes the labels of other seeds, from an earlier command
    write_record(output / "runs" / "labels.json", labels)
    failed = run_jobs(pool, jobs, output, quiet, keep_checkpoints=keep_checkpoints)
    warn_of_failures(failed)
    return failed


def warn_of_failures(failed: Iterable[JobResult]) -> None:
    for done in failed:
        log.warning("%s failed: %s", done.name, done.said)


def run_jobs(
    pool: InProcess | WorkerPool, jobs: Sequence[Job], output: Path, quiet: bool, *, keep_checkpoints: bool
) -> list[JobResult]:
    """Train the jobs that are not finished, and return the failed ones."""
    progress = _Progress(quiet, sum(not is_finished(job.folder) for job in jobs))

    def end(job: Job, done: JobResult) -> None:
        if done.finished and not keep_checkpoints:
            remove_below(job.folder, CHECKPOINTS)
        progress.end(done)

    ended = run_all(pool, jobs, output / "runs.jsonl", end, at_start=progress.begin)
    if not keep_checkpoints:
        remove_checkpoints(jobs)
    return [done for done in ended if not done.finished]


class _Progress:
    """Log the start and the end of each run, the number of runs, and the remaining time."""

    def __init__(self, quiet: bool, total: int) -> None:
        self.quiet, self.total = quiet, total
        self.started = self.ended = 0
        self.start_time = time.monotonic()

    def begin(self, job: Job) -> None:
        self.started += 1
        elapsed = time.monotonic() - self.start_time
        left = f", about {clock(elapsed / self.ended * (self.total - self.ended))} left" if self.ended else ""
        if not self.quiet:
            log.info("run %d of %d: %s%s", self.started, self.total, job.name, left)

    def end(self, done: JobResult) -> None:
        self.ended += 1
        if not self.quiet:
            log.info("%s: %s in %.0f s", done.name, done.in_words(), done.seconds)


def steps_of(label: str, words: list[str], race: Race, output: Path, pool: InProcess | WorkerPool) -> list[str]:
    """Return the overrides that end a run of this arm at its budget. A pilot run measures a step's cost."""
    kind, amount = race.budget
    if kind == "steps":
        return [f"max_steps={round(amount)}"]
    folder = output / "pilots" / label
    pilot = pilot_words(PILOT_STEPS[kind], PILOT_LOGS, race.seeds[0])
    job = Job(f"pilot of {label}", [*words, *pilot], folder)
    [done] = run_all(
        pool, [job], output / "runs.jsonl", at_start=lambda job: log.info("%s: %d steps", job.name, PILOT_STEPS[kind])
    )
    if not done.finished:
        raise InputError(f"race: arm {label} cannot be trained. {done.said}")
    remove_below(folder, CHECKPOINTS)
    remove_below(folder, "encoder")
    run = read_run(folder)
    spent = run.results["spent"]
    parts = in_turn(run.results)  # each stage trains for max_steps
    stages = len(parts)
    each = stages * amount_of_a_step(run, kind)
    steps = max(1, round(amount / each))
    log.info("%s: %.3g %s a step, %d steps", label, each, BUDGETS[kind], steps)
    if kind != "seconds":
        return [f"max_steps={steps}"]
    shares = [(f"stages.{name}." if name else "", part["wall_seconds"] / spent["wall_seconds"]) for name, part in parts]
    return [f"max_steps={steps}", *(f"{whose}max_time={_clock(amount * share)}" for whose, share in shares)]


def pilot_words(steps: int, log_every: int, seed: int) -> list[str]:
    """Return the overrides of a run that measures the cost of a step and is not scored."""
    return [
        f"max_steps={steps}",
        f"log_every_n_steps={log_every}",
        f"seed={seed}",
        "quiet=true",
        "evaluation.data_root=null",
        "evaluation.tasks=null",
        "evaluation.every_n_steps=null",
        "evaluation.at_start=false",
        "monitor=null",
    ]


def amount_of_a_step(run: FinishedRun, kind: str) -> float:
    """Return the cost of a step of a run, in the unit of the budget. Seconds exclude the steps before the first log."""
    spent = run.results["spent"]
    timed = [(row["step"], row[CLOCK]) for row in run.rows if CLOCK in row]
    if kind in SPENT:
        return spent[SPENT[kind]] / max(1, spent["steps"])  # type: ignore[literal-required]
    if len(in_turn(run.results)) > 1 or len(timed) < 2:
        return spent["wall_seconds"] / max(1, spent["steps"])
    (first, before), (last, after) = timed[0], timed[-1]
    return (after - before) / max(1.0, last - first)


def _clock(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"'{whole // 86400:02}:{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}'"
