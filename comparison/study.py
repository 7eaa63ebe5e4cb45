"""The trials of a sweep, as Optuna records them: what comes next, what is not worth going on with, what each came to.

A trial is a run folder, named by the words of its command line: what is there is found, whatever the record says.
"""

import hashlib
import json
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from comparison.collect import STOPPED
from comparison.processes import Done, Job
from comparison.sweep_file import TRIALS, Sweep, words_of
from contracts import InputError
from files.metrics import read_rows

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

STORAGES = {"sqlite": "sweep.db", "journal": "sweep.journal"}  # a journal is for machines that share the folder
OLD_RECORD = "trials.jsonl"
SIGN, GONE_AFTER = ".sweeping", 180.0  # of life, in a trial's folder; seconds after which another machine takes it over
MACHINE = "machine"


class Trials:
    """Of one sweep. ``jobs`` are taken from it one at a time; all that it does is safe between threads."""

    def __init__(
        self, sweep: Sweep, output: Path, words: list[str], number: int | None, seed: int, storage: str
    ) -> None:
        self.sweep, self.output, self.words, self.seed, self.storage = sweep, output, words, seed, storage
        self.distributions, grid = sweep.distributions(), sweep.grid()
        number = number or sweep.run_cap
        self.wanted = min(number or len(grid), len(grid)) if sweep.method == "grid" else number or TRIALS
        self.study = _open(sweep, output, sweep.identity(words, seed), storage)
        self._lock = threading.RLock()
        self._running: dict[str, Trial] = {}  # by the name of the job
        with FileLock(output / ".sweep.lock"):  # of machines that begin at once, one queues
            self._failed_before = {one.number for one in self._all("FAIL") if not self._finished(one.params)}
            self._queue(grid[: self.wanted])

    def _all(self, *states: str) -> "list[FrozenTrial]":
        found = self.study.get_trials(deepcopy=False)
        return [one for one in found if one.state.name in states] if states else found

    def _queue(self, grid: list[dict[str, Any]]) -> None:
        """Trials of a grid, and those that failed under an earlier command, where they are not there."""
        others = [one for one in self._all() if one.number not in self._failed_before]
        there = [one.params or one.system_attrs.get("fixed_params") for one in others]
        for values in grid or [one.params for one in self._all("FAIL") if one.number in self._failed_before]:
            if values not in there:
                self.study.enqueue_trial(values)
                there.append(values)

    def jobs(self) -> Iterator[Job]:
        """First those that were begun and not finished, then new ones, as many as are wanted in all."""
        for frozen in self._all("RUNNING"):
            if job := self._taken_over(frozen):
                yield job
        while job := self._next():
            yield job

    def _next(self) -> Job | None:
        with self._lock:
            while True:
                found = self._all()
                begun = [one for one in found if one.state.name != "WAITING"]
                count = sum(one.number not in self._failed_before for one in begun)
                if count >= self.wanted or (self.sweep.method == "grid" and len(begun) == len(found)):
                    return None
                self.study.sampler = self._sampler(len(begun))
                trial = self.study.ask(self.distributions)
                trial.set_user_attr(MACHINE, socket.gethostname())
                if job := self._job(trial):
                    return job

    def _taken_over(self, frozen: "FrozenTrial") -> Job | None:
        """None where another machine is at work on it."""
        from optuna.trial import Trial

        with self._lock, FileLock(self.output / ".sweep.lock"):
            sign = self._folder(frozen.params) / SIGN
            alive = sign.exists() and time.time() - sign.stat().st_mtime < GONE_AFTER
            elsewhere = frozen.user_attrs.get(MACHINE) != socket.gethostname()
            if self.storage == "journal" and elsewhere and alive:
                return None
            trial = Trial(self.study, frozen._trial_id)
            trial.set_user_attr(MACHINE, socket.gethostname())
            return self._job(trial)

    def _job(self, trial: "Trial") -> Job | None:
        """None where its run has finished, as the study is told then."""
        values = {name: trial.params[name] for name in self.sweep.parameters}
        said = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
        job = Job(f"trial {trial.number}: {said}", self._words(values), self._folder(values))
        self._running[job.name] = trial
        if self._finished(values):
            self.record(job, Done(job.name, 0, 0.0, 0, ""))
            return None
        self._sign(job.folder)
        return job

    def _words(self, values: dict[str, Any]) -> list[str]:
        return [*self.sweep.words, *words_of(values), *self.words, "quiet=true"]

    def _folder(self, values: dict[str, Any]) -> Path:
        values = {name: values[name] for name in self.sweep.parameters}
        digest = hashlib.sha256(json.dumps(self._words(values)[:-1]).encode()).hexdigest()[:8]
        return self.output / "runs" / digest

    def _finished(self, values: dict[str, Any]) -> bool:
        return (self._folder(values) / "results.json").exists()

    def _sampler(self, place: int) -> "BaseSampler":
        """Trial i is the same however many are drawn; machines that share a journal draw different ones."""
        from optuna.samplers import RandomSampler, TPESampler

        own = [socket.gethostname()] if self.storage == "journal" else []
        seed = int.from_bytes(hashlib.sha256(json.dumps([self.seed, place, *own]).encode()).digest()[:4], "little")
        return TPESampler(seed=seed, constant_liar=True) if self.sweep.method == "bayes" else RandomSampler(seed)

    def _sign(self, folder: Path) -> None:
        if self.storage == "journal":
            folder.mkdir(parents=True, exist_ok=True)
            (folder / SIGN).touch()

    def verdict(self, job: Job) -> str:
        """Why this trial should end, or nothing; asked while it runs."""
        self._sign(job.folder)
        with self._lock:
            return self._report(job) if self.sweep.rungs else ""

    def _report(self, job: Job) -> str:
        """Record the scores that the run has logged since; why it should end, or nothing."""
        rungs, trial, path = self.sweep.rungs, self._running[job.name], job.folder / "metrics.csv"
        rows = read_rows(path) if path.exists() else []
        scores = [float(row[self.sweep.metric]) for row in rows if self.sweep.metric in row]
        if rungs is not None and rungs.last is not None:
            scores = scores[: rungs.last - 1]
        best = max if self.sweep.maximize else min
        reported = {one.number: len(one.intermediate_values) for one in self._all()}
        for place in range(reported[trial.number] + 1, len(scores) + 1):
            trial.report(best(scores[:place]), place)
            others = sum(count >= place for number, count in reported.items() if number != trial.number)
            if trial.should_prune() and rungs and others + 1 >= rungs.eta:  # of fewer none is the worst
                return f"{self.sweep.metric} {best(scores[:place]):.2f} at scoring {place}"
        return ""

    def record(self, job: Job, done: Done) -> None:
        """What came of it; an interrupted trial stays one that is running."""
        from optuna.trial import TrialState

        state, value = None, None
        if done.early:
            (job.folder / STOPPED).write_text(json.dumps({"reason": done.early}) + "\n", encoding="utf-8")
            state = TrialState.PRUNED
        elif done.finished:
            with self._lock:
                self._report(job)  # what it logged since the last look, which others are judged by
            results = json.loads((job.folder / "results.json").read_text(encoding="utf-8"))
            value = results["scores"].get(self.sweep.metric)
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
        elif done.failed:
            state = TrialState.FAIL
        if state is not None:
            with self._lock:
                self.study.tell(self._running[job.name], value, state, skip_if_finished=True)

    def finished(self) -> int:
        return len(self._all("COMPLETE"))

    def best(self) -> tuple[float, str] | None:
        """The score, and the settings that it is of."""
        if not self._all("COMPLETE"):
            return None
        one = self.study.best_trial
        return float(one.value or 0.0), f"trial {one.number}: {' '.join(words_of(one.params))}"


def _open(sweep: Sweep, output: Path, name: str, storage: str) -> "Study":
    """
    Raises:
        InputError: the folder has a sweep of an earlier release, or its record is damaged.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.exc import DatabaseError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # constant_liar of TPE
    path = output / STORAGES[storage]
    if (output / OLD_RECORD).exists() and not any((output / one).exists() for one in STORAGES.values()):
        raise InputError(
            f"output={output} holds a sweep of an earlier release, which is not continued. Choose another output."
        )
    if other := next((one for one in STORAGES if one != storage and (output / STORAGES[one]).exists()), None):
        raise InputError(f"output={output} holds a sweep with storage={other}. Say storage={other}.")
    output.mkdir(parents=True, exist_ok=True)
    rungs = sweep.rungs
    pruner = optuna.pruners.SuccessiveHalvingPruner(rungs.first, rungs.eta) if rungs else optuna.pruners.NopPruner()
    try:
        return optuna.create_study(
            storage=RDBStorage(f"sqlite:///{path}") if storage == "sqlite"
            else JournalStorage(JournalFileBackend(str(path))),
            study_name=name, load_if_exists=True, pruner=pruner,
            direction="maximize" if sweep.maximize else "minimize",
        )  # fmt: skip
    except (DatabaseError, ValueError) as error:
        raise InputError(f"{path}: wanted the record of a sweep, got: {error}. Choose another output.") from error
