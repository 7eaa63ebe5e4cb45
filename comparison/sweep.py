"""Run a W&B sweep file without a server.

Grid or random; the trials are those that an agent would start, with the same words. The same
command goes on after a kill. ``output``, ``trials``, ``seed`` and ``parallel`` are the sweep's, all
other words are passed on to train.py, as ``data.path=FILE``.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from command.line import filled, log_to_terminal
from command.names import as_used
from command.statuses import exit_statuses
from comparison.early import Hyperband
from comparison.processes import Done, Job, run_all
from comparison.sweep_file import Sweep, read_sweep, trials_of
from contracts import InputError

log = logging.getLogger("comparison.sweep")

USAGE = (
    "python -m comparison.sweep configs/sweeps/NAME.yaml output=FOLDER [trials=N] [seed=1] [parallel=1] "
    "[KEY=VALUE of train.py ...]"
)


class Asked(NamedTuple):
    sweep: Sweep
    output: Path
    trials: int | None
    seed: int
    parallel: int
    words: list[str]  # for train.py


def read_words(arguments: Sequence[str]) -> Asked:
    """
    Raises:
        InputError: no sweep file, no output, or a value that is no number.
    """
    files = [word for word in arguments if "=" not in word]
    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    if len(files) != 1:
        raise InputError(f"wanted one sweep file, got {files or 'none'}. Usage: {USAGE}")
    if "output" not in given:
        raise InputError(f"output is not set: the folder for the runs of the sweep. Usage: {USAGE}")
    numbers = dict[str, int | None]()
    for name, default in (("trials", None), ("seed", 1), ("parallel", 1)):
        value = given.pop(name, None)
        if value is not None and not (value.isdigit() and int(value) > 0):
            raise InputError(f"{name}={value}: wanted a number, at least 1.")
        numbers[name] = default if value is None else int(value)
    output = Path(given.pop("output")).expanduser()
    words = [f"{key}={value}" for key, value in given.items()]
    return Asked(
        read_sweep(Path(files[0])), output, numbers["trials"], numbers["seed"] or 1, numbers["parallel"] or 1, words
    )


def jobs_of(asked: Asked) -> list[Job]:
    """A folder is named by what decides its trial, so that another order or more trials find what is there."""
    jobs = []
    for trial in trials_of(asked.sweep, asked.trials, asked.seed):
        words = [*asked.sweep.words, *trial.words(), *asked.words]
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:8]
        jobs.append(Job(trial.name, [*words, "quiet=true"], asked.output / "runs" / digest))
    return jobs


def run(arguments: Sequence[str]) -> int:
    """Exit status: 1 where a trial failed twice."""
    asked = read_words(arguments)
    jobs = jobs_of(asked)
    finished = sum((job.folder / "results.json").exists() for job in jobs)
    if asked.sweep.method == "bayes":
        log.info("method: bayes needs W&B's server; the trials are drawn at random instead.")
    log.info("%d trials, %d of them finished; %s", len(jobs), finished, asked.output)

    def told(done: Done) -> None:
        log.info("%s: %s in %.0f s", done.name, done.in_words(), done.seconds)

    done = run_all(jobs, asked.output / "trials.jsonl", asked.parallel, told, _verdict(asked.sweep, jobs))
    failed = [one for one in done if one.failed]
    for one in failed:
        log.warning("%s failed: %s", one.name, one.said)
    best = _best(jobs, asked.sweep)
    if best:
        log.info("best %s: %.2f with %s", asked.sweep.metric, best[0], best[1].name)
    log.info("Compare: python -m comparison runs='[%s/runs/*]' output=%s", asked.output, asked.output / "comparison")
    if len(failed) == len(jobs) and all(one.status == 2 for one in failed):
        raise InputError(f"all {len(jobs)} trials were refused. {failed[0].said}")
    return 1 if failed else 0


def _verdict(sweep: Sweep, jobs: Sequence[Job]) -> Callable[[Path], str] | None:
    """Where the file asks for early termination."""
    if not sweep.early_terminate:
        return None
    eta = float(sweep.early_terminate.get("eta", 3))
    folders = [job.folder for job in jobs]
    return Hyperband(sweep.bands, eta, sweep.metric, sweep.goal == "maximize", folders).verdict


def _best(jobs: Sequence[Job], sweep: Sweep) -> tuple[float, Job] | None:
    found = list[tuple[float, Job]]()
    for job in jobs:
        path = job.folder / "results.json"
        if path.exists():
            scores: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["scores"]
            if sweep.metric in scores:
                found.append((scores[sweep.metric], job))
    if not found:
        return None
    return (max if sweep.goal == "maximize" else min)(found, key=lambda one: one[0])


def main() -> None:
    log_to_terminal()
    with exit_statuses(config="train"):
        if {"-h", "--help"} & set(sys.argv[1:]):
            sys.stdout.write(as_used(f"{__doc__}\n{filled(USAGE)}\n"))
            return
        status = run(sys.argv[1:])
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
