"""Trials of a hyperparameter sweep, proposed by Optuna.

``sweep.json`` contains the values of all trials in the order in which they were drawn. The outcome of a trial is in its
run directory, whose name is a digest of the overrides. An interrupted sweep resumes from these two.
"""

import hashlib
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrastive_encoders.comparison.collect import STOPPED_FILE
from contrastive_encoders.comparison.outputs import COMPARISON, ENTRIES, REFUSED_FILE, SWEEP
from contrastive_encoders.comparison.run_scheduler import Job, JobResult
from contrastive_encoders.comparison.sweep_file import TRIALS, Sweep, format_overrides
from contrastive_encoders.core import InputError
from contrastive_encoders.core.key_suggestions import nearest
from contrastive_encoders.io.manifest import CorruptFileError, is_finished, read_record, write_record
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.io.output_directory import claim_output_directory

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

log = logging.getLogger(__name__)


class Trials:
    """Trials of one sweep, managed by an Optuna study that can be resumed from the output directory."""

    def __init__(
        self,
        sweep: Sweep,
        output: Path,
        overrides: list[str],
        number: int | None,
        seed: int,
        options: Sequence[str] = (),
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # constant_liar of TPE
        claim_output_directory("output", output, COMPARISON, ENTRIES)
        self.sweep, self.output, self.overrides, self.seed, self.options = sweep, output, overrides, seed, list(options)
        self.distributions, self.grid = sweep.distributions(), sweep.grid()
        number = number or sweep.run_cap
        self.total = min(number or len(self.grid), len(self.grid)) if self.grid else number or TRIALS
        rungs = sweep.rungs
        self.study = optuna.create_study(
            direction="maximize" if sweep.maximize else "minimize",
            pruner=optuna.pruners.SuccessiveHalvingPruner(rungs.first, rungs.eta) if rungs else None,
        )
        self._sweeps = _read_sweeps(output / SWEEP)
        self._proposed: list[dict[str, Any]] = self._sweeps.setdefault(sweep.identity(overrides, seed), [])
        self._running: dict[str, Trial] = {}  # by the name of the job
        if (
            not self.count_finished()
        ):  # the refused settings may be common to all trials, or a missing file may exist now
            for folder in self.refused_folders():
                (folder / REFUSED_FILE).unlink()
        jobs = [self._ask(values) for values in self._proposed]
        self._unfinished = [job for job in jobs if not self._report_end(job)]

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs of trials that an earlier command did not finish, then the jobs of new trials."""
        for job in self._unfinished:
            if not self._report_end(job):
                yield job
        while len(self._proposed) < self.total:
            job = self._propose()
            if not self._report_end(job):
                yield job

    def _propose(self) -> Job:
        """Sample the settings of a new trial. The seed of the sampler depends only on the number of the trial."""
        place = len(self._proposed)
        self.study.sampler = self._sampler(place)
        job = self._ask(self.grid[place] if self.grid else None)
        self._proposed.append(self._running[job.name].params)
        write_record(self.output / SWEEP, self._sweeps)
        return job

    def _sampler(self, place: int) -> "BaseSampler":
        from optuna.samplers import RandomSampler, TPESampler

        seed = int.from_bytes(hashlib.sha256(json.dumps([self.seed, place]).encode()).digest()[:4], "little")
        return TPESampler(seed=seed, constant_liar=True) if self.sweep.method == "bayes" else RandomSampler(seed)

    def _ask(self, values: dict[str, Any] | None) -> Job:
        """Start a trial with the parameter values ``values``, or with values that the study samples (None)."""
        if values is not None:
            self.study.enqueue_trial(values)
        trial = self.study.ask(self.distributions)
        settings = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in trial.params.items())
        overrides = [*self.options, *self._overrides(trial.params), "quiet=true"]
        job = Job(f"trial {trial.number}: {settings}", overrides, self._folder(trial.params))
        self._running[job.name] = trial
        return job

    def _overrides(self, values: dict[str, Any]) -> list[str]:
        return [
            *self.sweep.overrides,
            *format_overrides({name: values[name] for name in self.sweep.parameters}),
            *self.overrides,
        ]

    def _folder(self, values: dict[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(self._overrides(values)).encode()).hexdigest()[:8]
        return self.output / "runs" / digest

    def _report_end(self, job: Job) -> bool:
        """Report the outcome of a job's run to the study, and return whether the run has ended.

        The run may belong to an earlier command or to another trial with the same settings.
        """
        from optuna.trial import TrialState

        trial = self._running[job.name]
        self.stop_reason(job)  # other trials are compared with the scores that it logged
        if (job.folder / REFUSED_FILE).exists():
            self.study.tell(trial, state=TrialState.FAIL)
        elif (job.folder / STOPPED_FILE).exists():
            self.study.tell(trial, state=TrialState.PRUNED)
        elif is_finished(job.folder):
            score = self._score(job)
            self.study.tell(trial, score, TrialState.FAIL if score is None else TrialState.COMPLETE)
        else:
            return False
        return True

    def stop_reason(self, job: Job) -> str:
        """Report to the study the scores that a run has logged since the last call, and decide whether to stop the run.

        Returns:
            The reason to stop the run early, or an empty string. It is always empty if the sweep has no
            ``early_terminate``.
        """
        rungs, trial, path = self.sweep.rungs, self._running[job.name], job.folder / "metrics.csv"
        if rungs is None or not path.exists():
            return ""
        scores = [float(row[self.sweep.metric]) for row in read_rows(path) if self.sweep.metric in row]
        if rungs.last is not None:
            scores = scores[: rungs.last - 1]
        best = max if self.sweep.maximize else min
        reported = {one.number: len(one.intermediate_values) for one in self.study.get_trials(deepcopy=False)}
        reasons = list[str]()
        for place in range(reported[trial.number] + 1, len(scores) + 1):
            trial.report(best(scores[:place]), place)
            others = sum(count >= place for number, count in reported.items() if number != trial.number)
            if trial.should_prune() and others + 1 >= rungs.eta:  # with fewer, no trial is the worst
                reasons.append(f"{self.sweep.metric} {best(scores[:place]):.2f} at evaluation {place}")
        return reasons[0] if reasons else ""

    def record(self, job: Job, done: JobResult) -> None:
        """Record in the study how a trial ended. An interrupted or failed trial is started again by the next
        command.
        """
        from optuna.trial import TrialState

        if done.stop_reason:
            write_record(job.folder / STOPPED_FILE, {"reason": done.stop_reason})
        if self._report_end(job):
            return
        if done.finished:
            log.warning("%s ended without an error, but wrote no scores to %s.", job.name, job.folder)
        if done.finished or done.failed:
            self.study.tell(self._running[job.name], state=TrialState.FAIL)

    def _score(self, job: Job) -> float | None:
        """Return the value of the sweep's metric in a finished run, or None if it is missing or not finite.

        Raises:
            InputError: the run has other scores, and no finished run has the metric, so there would be no best trial.
        """
        scores = read_record(job.folder / "results.json").get("scores") or {}
        value = scores.get(self.sweep.metric)
        if not scores:
            log.warning("%s has no scores, so it cannot be the best trial.", job.name)
        elif self.sweep.metric and not any(map(self._has_metric, [job.folder, *self._folders()])):
            near = nearest(self.sweep.metric, scores)
            raise InputError(
                location=str(self.sweep.path),
                key="metric.name",
                value=self.sweep.metric,
                expected=f"a score of the finished {job.name} ({', '.join(scores)})",
                hint=f"The nearest is {near}. Finished trials are kept." if near else "Finished trials are kept.",
            )
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def _has_metric(self, folder: Path) -> bool:
        return is_finished(folder) and self.sweep.metric in (read_record(folder / "results.json").get("scores") or {})

    def count_finished(self) -> int:
        return sum(map(is_finished, self._folders()))

    def ended_folders(self) -> list[Path]:
        """Return the directories of the trials that finished or were stopped early."""
        return [folder for folder in self._folders() if is_finished(folder) or (folder / STOPPED_FILE).exists()]

    def refused_folders(self) -> list[Path]:
        """Return the directories of the trials whose settings were rejected as invalid."""
        return [folder for folder in self._folders() if (folder / REFUSED_FILE).exists()]

    def _folders(self) -> list[Path]:
        return sorted({self._folder(values) for values in self._proposed})

    def best(self) -> tuple[float, str] | None:
        """Return the best score and a description of its trial, or None if no trial has finished."""
        try:
            one = self.study.best_trial
        except ValueError:
            return None
        return float(one.value or 0.0), f"trial {one.number}: {' '.join(format_overrides(one.params))}"


def _read_sweeps(path: Path) -> dict[str, Any]:
    """Read the sweeps of an output directory: a mapping from the `Sweep.identity` of each sweep to the list of the
    settings of its trials.

    Raises:
        InputError: the file is damaged.
    """
    try:
        return read_record(path)
    except FileNotFoundError:
        return {}
    except (OSError, CorruptFileError) as error:
        raise InputError(
            location=str(path),
            value=error,
            expected="an intact record of a sweep",
            hint="Choose a different output.",
        ) from error
