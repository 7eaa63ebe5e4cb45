"""The trials of a sweep, as Optuna records them: what comes next, what is not worth going on with, what each came to.

A trial is a run folder, named by the words of its command line: what is there is found, whatever the record says.
"""

import contextlib
import hashlib
import json
import logging
import math
import socket
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from comparison.collect import STOPPED
from comparison.outputs import COMPARISON, ENTRIES
from comparison.processes import Done, Job
from comparison.sweep_file import TRIALS, Sweep, words_of
from contracts import InputError
from contracts.settings import nearest
from files.manifest import is_finished, read_record, write_record
from files.metrics import read_rows
from files.ownership import check_output_folder, check_owner, claim_folder, write_marker

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

log = logging.getLogger("comparison.sweep")

STORAGES = {"sqlite": "sweep.db", "journal": "sweep.journal"}  # a journal is for machines that share the folder
GONE_AFTER = 180.0  # seconds without a sign of life after which another machine takes a trial over
MACHINE = "machine"
LOCK = ".sweep.lock"  # of what two machines must not do at once


class Trials:
    """Of one sweep. ``jobs`` are taken from it one at a time; all that it does is safe between threads."""

    def __init__(
        self,
        sweep: Sweep,
        output: Path,
        words: list[str],
        number: int | None,
        seed: int,
        storage: str,
        options: Sequence[str] = (),
    ) -> None:
        self.options = list(options)
        self.sweep, self.output, self.words, self.seed, self.storage = sweep, output, words, seed, storage
        self.distributions, grid = sweep.distributions(), sweep.grid()
        number = number or sweep.run_cap
        self.wanted = min(number or len(grid), len(grid)) if sweep.method == "grid" else number or TRIALS
        self.study = _open(sweep, output, sweep.identity(words, seed), storage)
        self._lock = threading.RLock()
        self._running: dict[str, Trial] = {}  # by the name of the job
        self._told_of_the_metric = False
        with self._sound(), FileLock(output / LOCK):  # of machines that begin at once, one queues
            self._failed_before = {one.number for one in self._all("FAIL") if not self._finished(one.params)}
            self._queue(grid[: self.wanted])

    def _sound(self) -> contextlib.AbstractContextManager[None]:
        return _sound(self.output / STORAGES[self.storage])

    def _all(self, *states: str) -> "list[FrozenTrial]":
        found = self.study.get_trials(deepcopy=False)
        return [one for one in found if one.state.name in states] if states else found

    def _queue(self, grid: list[dict[str, Any]]) -> None:
        """Trials of a grid, and those that failed under an earlier command, where they are not there."""
        there = self._folders(one for one in self._all() if one.number not in self._failed_before)
        for values in grid or [one.params for one in self._all("FAIL") if one.number in self._failed_before]:
            if self._folder(values) not in there:
                self.study.enqueue_trial(values)
                there.add(self._folder(values))

    def _folders(self, trials: "Iterable[FrozenTrial]") -> set[Path]:
        """Of those whose values are known: one that a kill left half drawn has them where it was queued."""
        values = [one.system_attrs.get("fixed_params") or one.params for one in trials]
        return {self._folder(one) for one in values if set(one) == set(self.sweep.parameters)}

    def jobs(self) -> Iterator[Job]:
        """First those that were begun and not finished, then new ones, as many as are wanted in all."""
        with self._sound():
            for frozen in self._all("RUNNING"):
                if job := self._taken_over(frozen.number):
                    yield job
            while job := self._next():
                yield job

    def _next(self) -> Job | None:
        with self._lock, FileLock(self.output / LOCK):  # of machines that ask at once, one gets the last of a grid
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

    def _taken_over(self, number: int) -> Job | None:
        """None where another machine is at work on it, or was."""
        from optuna.trial import Trial

        with self._lock, FileLock(self.output / LOCK):
            frozen = self._all()[number]
            drawn = set(frozen.params) == set(self.sweep.parameters)  # not where a kill came while it was drawn
            sign = sign_of(self._folder(frozen.params)) if drawn else None
            alive = sign is not None and sign.exists() and time.time() - sign.stat().st_mtime < GONE_AFTER
            elsewhere = frozen.user_attrs.get(MACHINE) != socket.gethostname()
            if frozen.state.name != "RUNNING" or (self.storage == "journal" and elsewhere and alive):
                return None
            self.study.sampler = self._sampler(number)
            trial = Trial(self.study, frozen._trial_id)
            self._draw_the_rest(trial, frozen)
            trial.set_user_attr(MACHINE, socket.gethostname())
            return self._job(trial)

    def _draw_the_rest(self, trial: "Trial", frozen: "FrozenTrial") -> None:
        """What was drawn before a kill is drawn again and thrown away, so that the rest is what it would have been."""
        queued = frozen.system_attrs.get("fixed_params", {})
        for name, distribution in self.distributions.items():
            if name not in frozen.params:
                trial._suggest(name, distribution)
            elif name not in queued and not distribution.single():
                self.study.sampler.sample_independent(self.study, frozen, name, distribution)

    def _job(self, trial: "Trial") -> Job | None:
        """None where its run has finished, as the study is told then."""
        values = {name: trial.params[name] for name in self.sweep.parameters}
        settings = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())
        job = Job(f"trial {trial.number}: {settings}", [*self.options, *self._words(values)], self._folder(values))
        self._running[job.name] = trial
        if self._finished(values):
            self._record(job, Done(job.name, 0, 0.0, 0, ""))
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
        return is_finished(self._folder(values))

    def _sampler(self, place: int) -> "BaseSampler":
        """Trial i is the same however many are drawn; machines that share a journal draw different ones."""
        from optuna.samplers import RandomSampler, TPESampler

        own = [socket.gethostname()] if self.storage == "journal" else []
        seed = int.from_bytes(hashlib.sha256(json.dumps([self.seed, place, *own]).encode()).digest()[:4], "little")
        return TPESampler(seed=seed, constant_liar=True) if self.sweep.method == "bayes" else RandomSampler(seed)

    def _sign(self, folder: Path) -> None:
        if self.storage == "journal":
            folder.parent.mkdir(parents=True, exist_ok=True)
            sign_of(folder).touch()

    def verdict(self, job: Job) -> str:
        """Why this trial should end, or nothing; asked while it runs."""
        with self._sound(), self._lock:
            self._sign(job.folder)
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
        with self._sound(), self._lock:
            self._record(job, done)

    def _record(self, job: Job, done: Done) -> None:
        from optuna.trial import TrialState

        state, value = None, None
        if done.early:
            write_record(job.folder / STOPPED, {"reason": done.early})
            state = TrialState.PRUNED
        elif done.finished:
            self._report(job)  # what it logged since the last look, which others are judged by
            value = self._score(job)
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
        elif done.failed:
            state = TrialState.FAIL
        if state is not None:
            self.study.tell(self._running[job.name], value, state, skip_if_finished=True)

    def _score(self, job: Job) -> float | None:
        """None where the run left none, which is told."""
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
        with self._sound():
            return sum(is_finished(folder) for folder in self._folders(self._all()))

    def best(self) -> tuple[float, str] | None:
        """The score, and the settings that it is of."""
        with self._sound():
            if not self._all("COMPLETE"):
                return None
            one = self.study.best_trial
            return float(one.value or 0.0), f"trial {one.number}: {' '.join(words_of(one.params))}"


def sign_of(folder: Path) -> Path:
    """The file whose time is the last sign of life of the trial in this folder. It lies beside the folder, which has to
    be empty when its run begins.
    """
    return folder.with_name(f".{folder.name}.sweeping")


def _open(sweep: Sweep, output: Path, name: str, storage: str) -> "Study":
    """
    Raises:
        InputError: the folder holds something else, another command is at work in it, or its record is damaged.
    """
    import optuna
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("optuna.storages._rdb").setLevel(logging.ERROR)  # it logs the SQL that failed
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # constant_liar of TPE
    path = output / STORAGES[storage]
    if other := next((one for one in STORAGES if one != storage and (output / STORAGES[one]).exists()), None):
        raise InputError(f"output={output} holds a sweep with storage={other}. Say storage={other}.")
    if storage == "sqlite":
        claim_folder("output", output, COMPARISON, ENTRIES)
    else:  # several machines share it
        check_owner("output", output, COMPARISON)
        check_output_folder("output", output)
        write_marker(output, COMPARISON, ENTRIES)
    rungs = sweep.rungs
    pruner = optuna.pruners.SuccessiveHalvingPruner(rungs.first, rungs.eta) if rungs else optuna.pruners.NopPruner()
    with _sound(path):
        if storage == "journal":
            path = path.resolve()  # the link that is Optuna's lock must lead there, or one that a kill left stays
            _cut_a_torn_line(path)
        return optuna.create_study(
            storage=RDBStorage(f"sqlite:///{path}")
            if storage == "sqlite"
            else JournalStorage(JournalFileBackend(str(path))),
            study_name=name,
            load_if_exists=True,
            pruner=pruner,
            direction="maximize" if sweep.maximize else "minimize",
        )


def _cut_a_torn_line(journal: Path) -> None:
    """A kill while a line is written leaves a part of it, and the next line would go on where it ends.

    Raises:
        ValueError: it is no journal.
    """
    from optuna.storages.journal import JournalFileSymlinkLock

    if not journal.exists():
        return
    lock = JournalFileSymlinkLock(str(journal))  # Optuna's own, of each that writes a line
    lock.acquire()
    try:
        content = journal.read_bytes()
        if content and not content.startswith(b"{"):
            raise ValueError("a file that is no journal")
        with journal.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


@contextlib.contextmanager
def _sound(record: Path) -> Iterator[None]:
    """
    Raises:
        InputError: Optuna could not read the record, or not write it.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except InputError:
        raise
    except (DatabaseError, StorageInternalError, RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        reason = f"nothing called {error}" if isinstance(error, KeyError) else str(cause).partition("\n")[0]
        raise InputError(
            f"{record}: wanted the record of a sweep, got: {reason.rstrip('.')}. Choose another output."
        ) from error
