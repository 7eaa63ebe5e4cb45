"""Run a W&B sweep file without a server.

Grid, random or bayes (TPE) and hyperband by Optuna; the trials have the words that an agent would
give them. The same command goes on after a kill. ``output``, ``trials``, ``seed``, ``parallel``,
``cluster``, ``num_cpus``, ``num_gpus`` and ``keep_checkpoints`` are the sweep's, all other words
are passed to each training, as ``data.path=FILE``. A finished trial keeps its encoder and its
scores; with ``keep_checkpoints=true`` its checkpoints, too.
"""

import argparse
import logging
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.comparison.run_scheduler import CHECKPOINTS, Done, Job, open_workers, remove_below, run_all
from contrastive_encoders.comparison.sweep_file import Sweep, read_sweep
from contrastive_encoders.composition.key_docs import filled
from contrastive_encoders.composition.override_checks import refuse_option
from contrastive_encoders.core import InputError, check_local_output, missing_package
from contrastive_encoders.runtime.child_processes import begin_process, check_number
from contrastive_encoders.runtime.exit_codes import exit_statuses
from contrastive_encoders.runtime.log_output import log_to_terminal

log = logging.getLogger(__name__)

USAGE = (
    "contrastive-encoders sweep configs/sweeps/NAME.yaml output=FOLDER [trials=N] [seed=1] [parallel=1] "
    "[cluster=auto|ray|ray://HOST:PORT] [num_cpus=N] [num_gpus=N] [keep_checkpoints=false] [--config-dir=FOLDER] "
    "[KEY=VALUE of train ...]"
)


class Asked(NamedTuple):
    sweep: Sweep
    output: Path
    trials: int | None
    seed: int
    workers: dict[str, Any]  # of `open_workers`
    keep_checkpoints: bool
    words: list[str]  # for train
    options: list[str]  # for Hydra in each trial; a study is the same wherever the folder lies


def read_words(arguments: Sequence[str]) -> Asked:
    """
    Raises:
        InputError: no sweep file, no output, or a value that is no number.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse_option  # type: ignore[method-assign]
    parser.add_argument("--config-dir", "-cd", action="append", default=[], type=Path)
    known, words = parser.parse_known_args(arguments)
    if lacking := [folder for folder in known.config_dir if not folder.is_dir()]:
        raise InputError(
            f"--config-dir={lacking[0]}: no such folder. Name the folder that holds model/ or experiment/."
        )
    if others := [word for word in words if word.startswith("-")]:
        raise InputError(f"{others[0]}: of Hydra's options a sweep takes --config-dir=FOLDER alone. Leave it out.")
    files = [word for word in words if "=" not in word]
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if len(files) != 1:
        raise InputError(f"wanted one sweep file, got {files or 'none'}. Usage: {USAGE}")
    if "output" not in given:
        raise InputError(f"output is not set: the folder for the runs of the sweep. Usage: {USAGE}")
    trials, seed, parallel = (_number(given, name, least=1) for name in ("trials", "seed", "parallel"))
    workers: dict[str, Any] = {name: _number(given, name, least=0) for name in ("num_cpus", "num_gpus")}
    workers |= {"parallel": int(parallel or 1), "cluster": given.pop("cluster", None)}
    if workers["cluster"] is None:
        check_number("parallel", workers["parallel"])
    check_local_output("output", given["output"])
    return Asked(
        read_sweep(Path(files[0])),
        Path(given.pop("output")).expanduser(),
        int(trials) if trials else None,
        int(seed or 1),
        workers,
        _flag(given, "keep_checkpoints"),
        [f"{key}={value}" for key, value in given.items()],
        [f"--config-dir={folder.absolute()}" for folder in known.config_dir],
    )


def _number(given: dict[str, str], name: str, least: int) -> float | None:
    """Take a number out of the words; a whole one where it counts something, from 1."""
    value = given.pop(name, None)
    if value is None:
        return None
    if not re.fullmatch(r"\d+" if least else r"\d+(\.\d+)?", value) or float(value) < least:
        raise InputError(f"{name}={value}: wanted a number, at least {least}.")
    return float(value)


def _flag(given: dict[str, str], name: str) -> bool:
    """Take true or false out of the words; false without a word."""
    value = given.pop(name, "false").lower()
    if value not in ("true", "false"):
        raise InputError(key=name, value=value, expected="true or false")
    return value == "true"


def run(arguments: Sequence[str]) -> int:
    """Exit status: 1 where a trial failed twice."""
    asked = read_words(arguments)
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise missing_package("optuna", "sweep", location="a sweep without a server") from error
    from contrastive_encoders.comparison.study import RECORD, Trials, sound

    with sound(asked.output / RECORD), open_workers(asked.output, **asked.workers) as pool:
        trials = Trials(asked.sweep, asked.output, asked.words, asked.trials, asked.seed, asked.options)
        log.info("%d trials, %d of them finished; %s", trials.wanted, trials.finished(), asked.output)
        if refused := trials.refused():
            folders = shlex.join(map(str, refused))
            log.warning("Refused before, and not tried again: %d. To try them: rm -r %s", len(refused), folders)

        def record(job: Job, done: Done) -> None:
            trials.record(job, done)
            if not asked.keep_checkpoints and (done.finished or done.early):
                remove_below(job.folder, CHECKPOINTS)
            log.info("%s: %s in %.0f s", done.name, done.in_words(), done.seconds)

        done = run_all(pool, trials.jobs(), asked.output / "trials.jsonl", record, trials.verdict)
        for folder in trials.ended() if not asked.keep_checkpoints else []:  # those of an earlier command, too
            remove_below(folder, CHECKPOINTS)
        best, finished = trials.best(), trials.finished()
    failed = [one for one in done if one.failed]
    for one in failed:
        log.warning("%s failed: %s", one.name, one.said)
    if best:
        log.info("best %s: %.2f with %s", asked.sweep.metric, *best)
    words = (f"runs=[{asked.output}/runs/*]", f"output={asked.output / 'comparison'}")
    log.info("Compare: contrastive-encoders compare %s", shlex.join(words))
    if failed and not finished and all(one.status == 2 for one in failed):
        raise InputError(f"all {len(failed)} trials were refused. {failed[0].said}")
    return 1 if failed else 0


def main(words: Sequence[str], command: str = "sweep") -> None:
    begin_process()
    log_to_terminal()
    with exit_statuses("train", words, command=command):
        if {"-h", "--help"} & set(words):
            sys.stdout.write(f"{__doc__}\n{filled(USAGE)}\n")
            return
        status = run(words)
    if status:
        sys.exit(status)
