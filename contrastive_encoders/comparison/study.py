"""Trials of a sweep, proposed and recorded by Optuna.

The record is a database that the driver alone reads and writes, so whatever it says to be running was cut short with an
earlier driver, and is begun again. A trial is a run folder, named by the words of its command line: what is there is
found, whatever the record says.
"""

import contextlib
import hashlib
import json
import logging
import math
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrastive_encoders.comparison.collect import STOPPED
from contrastive_encoders.comparison.outputs import COMPARISON, ENTRIES, REFUSED
from contrastive_encoders.comparison.run_scheduler import WRONG_INPUT, Done, Job
from contrastive_encoders.comparison.sweep_file import TRIALS, Sweep, words_of
from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.core.config_schema import nearest
from contrastive_encoders.io.manifest import is_finished, read_record, write_record
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.output_directory import claim_folder

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

log = logging.getLogger(__name__)

RECORD = "sweep.db"


class Trials:
    """The trials of one sweep."""

    def __init__(
        self, sweep: Sweep, output: Path, words: list[str], number: int | None, seed: int, options: Sequence[str] = ()
    ) -> None:
        self.sweep, self.output, self.words, self.seed, self.options = sweep, output, words, seed, list(options)
        self.distributions, grid = sweep.distributions(), sweep.grid()
        number = number or sweep.run_cap
        self.wanted = min(number or len(grid), len(grid)) if sweep.method == "grid" else number or TRIALS
        self.study = _open(sweep, output, sweep.identity(words, seed))
        self._running: dict[str, Trial] = {}  # by the name of the job
        self._told_of_the_metric = False
        self._fail_what_is_half_drawn()
        if not self.finished():  # what was refused may be the words of all trials, or a file that is there now
            for folder in self._folders(self._all("FAIL")):
                (folder / REFUSED).unlink(missing_ok=True)
        failed = [one for one in self._all("FAIL") if not self._finished(one.params)]
        self._failed_before = {one.number for one in failed if not self._refused(one.params)}
        self._queue(grid[: self.wanted])

    def _all(self, *states: str) -> "list[FrozenTrial]":
        found = self.study.get_trials(deepcopy=False)
        return [one for one in found if one.state.name in states] if states else found

    def _fail_what_is_half_drawn(self) -> None:
        """Mark trials as failed that were half drawn when the driver was killed: new ones draw the same values."""
        from optuna.trial import TrialState

        for one in self._all("RUNNING"):
            if not self._is_whole(one.params):
                self.study.tell(one.number, state=TrialState.FAIL)

    def _is_whole(self, values: dict[str, Any]) -> bool:
        return set(values) == set(self.sweep.parameters)

    def _queue(self, grid: list[dict[str, Any]]) -> None:
        """Enqueue the trials of a grid, and those that failed under an earlier command, unless they are recorded."""
        there = self._folders(one for one in self._all() if one.number not in self._failed_before)
        failed = [_values(one) for one in self._all("FAIL") if one.number in self._failed_before]
        for values in grid or filter(self._is_whole, failed):
            if self._folder(values) not in there:
                self.study.enqueue_trial(values)
                there.add(self._folder(values))

    def _folders(self, trials: "Iterable[FrozenTrial]") -> set[Path]:
        """Return the run folders of trials whose values are all known."""
        return {self._folder(values) for values in map(_values, trials) if self._is_whole(values)}

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs of trials that an earlier command did not finish, then those of new trials."""
        from optuna.trial import Trial

        for frozen in self._all("RUNNING"):
            if job := self._job(Trial(self.study, frozen._trial_id)):
                yield job
        while job := self._next():
            yield job

    def _next(self) -> Job | None:
        while True:
            counted = [one for one in self._all() if one.number not in self._failed_before]
            begun = sum(one.state.name != "WAITING" for one in counted)
            if begun >= self.wanted or (self.sweep.method == "grid" and begun == len(counted)):
                return None
            self.study.sampler = self._sampler(begun)
            if job := self._job(self.study.ask(self.distributions)):
                return job

    def _job(self, trial: "Trial") -> Job | None:
        """Return the job of a trial; None if its run has finished or was refused, which is then recorded."""
        values = {name: trial.params[name] for name in self.sweep.parameters}
        settings = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
        job = Job(f"trial {trial.number}: {settings}", [*self.options, *self._words(values)], self._folder(values))
        self._running[job.name] = trial
        if self._refused(values):  # the same values were drawn before
            self.record(job, Done(job.name, WRONG_INPUT, 0.0, 0, ""))
            return None
        if not self._finished(values):
            return job
        self.record(job, Done(job.name, 0, 0.0, 0, ""))
        return None

    def _words(self, values: dict[str, Any]) -> list[str]:
        return [*self.sweep.words, *words_of(values), *self.words, "quiet=true"]

    def _folder(self, values: dict[str, Any]) -> Path:
        values = {name: values[name] for name in self.sweep.parameters}
        digest = hashlib.sha256(json.dumps(self._words(values)[:-1]).encode()).hexdigest()[:8]
        return self.output / "runs" / digest

    def _finished(self, values: dict[str, Any]) -> bool:
        return self._is_whole(values) and is_finished(self._folder(values))

    def _refused(self, values: dict[str, Any]) -> bool:
        return self._is_whole(values) and (self._folder(values) / REFUSED).exists()

    def _sampler(self, place: int) -> "BaseSampler":
        """Return the sampler of trial ``place``, whose seed depends on the place alone."""
        from optuna.samplers import RandomSampler, TPESampler

        seed = int.from_bytes(hashlib.sha256(json.dumps([self.seed, place]).encode()).digest()[:4], "little")
        return TPESampler(seed=seed, constant_liar=True) if self.sweep.method == "bayes" else RandomSampler(seed)

    def verdict(self, job: Job) -> str:
        """Record the scores that a run has logged since the last call. Returns why it should end, or "": so without
        ``early_terminate``.
        """
        rungs, trial, path = self.sweep.rungs, self._running[job.name], job.folder / "metrics.csv"
        if rungs is None:
            return ""
        rows = read_rows(path) if path.exists() else []
        scores = [float(row[self.sweep.metric]) for row in rows if self.sweep.metric in row]
        if rungs.last is not None:
            scores = scores[: rungs.last - 1]
        best = max if self.sweep.maximize else min
        reported = {one.number: len(one.intermediate_values) for one in self._all()}
        for place in range(reported[trial.number] + 1, len(scores) + 1):
            trial.report(best(scores[:place]), place)
            others = sum(count >= place for number, count in reported.items() if number != trial.number)
            if trial.should_prune() and others + 1 >= rungs.eta:  # of fewer none is the worst
                return f"{self.sweep.metric} {best(scores[:place]):.2f} at scoring {place}"
        return ""

    def record(self, job: Job, done: Done) -> None:
        """Record the end of a trial; one that was interrupted stays recorded as running."""
        from optuna.trial import TrialState

        state, value = None, None
        if done.early:
            write_record(job.folder / STOPPED, {"reason": done.early})
            state = TrialState.PRUNED
        elif done.finished:
            self.verdict(job)  # what it logged since the last look, which others are judged by
            value = self._score(job)
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
        elif done.failed:
            state = TrialState.FAIL
        if state is not None:
            self.study.tell(self._running[job.name], value, state, skip_if_finished=True)

    def _score(self, job: Job) -> float | None:
        """Return the score of a finished run; None, with a warning, if it left none."""
        try:
            scores = dict(read_record(job.folder / "results.json")["scores"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s ended without an error, but left no scores in %s (%s).", job.name, job.folder, error)
            return None
        value = scores.get(self.sweep.metric)
        if value is None and self.sweep.metric and not self._told_of_the_metric:
            self._told_of_the_metric = True
            near = nearest(self.sweep.metric, scores, cutoff=0.0)
            advice = f" The nearest is {near}." if near else ""
            log.warning(
                "%s: metric.name %s is not among the scores of %s, so there is no best.%s",
                self.sweep.path,
                self.sweep.metric,
                job.name,
                advice,
            )
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def finished(self) -> int:
        return sum(is_finished(folder) for folder in self._folders(self._all()))

    def ended(self) -> list[Path]:
        """Return the directories of trials that finished or were stopped early."""
        return sorted(self._folders(self._all("COMPLETE", "PRUNED")))

    def refused(self) -> list[Path]:
        """Return the directories of trials whose settings were refused."""
        return sorted(folder for folder in self._folders(self._all()) if (folder / REFUSED).exists())

    def best(self) -> tuple[float, str] | None:
        """Return the best score and the settings of its trial; None before a trial has finished."""
        if not self._all("COMPLETE"):
            return None
        one = self.study.best_trial
        return float(one.value or 0.0), f"trial {one.number}: {' '.join(words_of(one.params))}"


def _values(trial: "FrozenTrial") -> dict[str, Any]:
    """Return the values of a trial; those of one that was enqueued are known before they are drawn."""
    return trial.system_attrs.get("fixed_params") or trial.params


def _open(sweep: Sweep, output: Path, name: str) -> "Study":
    """
    Raises:
        InputError: the folder holds something else, another command is at work in it, or its record is damaged.
    """
    import optuna
    from sqlalchemy.pool import NullPool

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("optuna.storages._rdb").setLevel(logging.ERROR)  # it logs the SQL that failed
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # constant_liar of TPE
    claim_folder("output", output, COMPARISON, ENTRIES)
    rungs = sweep.rungs
    pruner = optuna.pruners.SuccessiveHalvingPruner(rungs.first, rungs.eta) if rungs else optuna.pruners.NopPruner()
    try:
        return optuna.create_study(
            storage=optuna.storages.RDBStorage(
                "sqlite:///",  # names no file: in an address ? begins options
                engine_kwargs={"creator": lambda: sqlite3.connect(output / RECORD), "poolclass": NullPool},
            ),
            study_name=name,
            load_if_exists=True,
            pruner=pruner,
            direction="maximize" if sweep.maximize else "minimize",
        )
    except RuntimeError as error:
        raise InputError(f"output={output} holds a sweep of another release of Optuna. Choose another.") from error


@contextlib.contextmanager
def sound(record: Path) -> Iterator[None]:
    """
    Raises:
        InputError: within, Optuna could not read the record, or not write it.
        OutputError: there is no room for it.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except (DatabaseError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        reason = str(cause).partition("\n")[0].rstrip(".")
        if getattr(getattr(cause, "orig", None), "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise OutputError(f"{record}: {reason}. Make room, then start the same command again.") from error
        raise InputError(f"{record}: wanted the record of a sweep, got: {reason}. Choose another output.") from error
