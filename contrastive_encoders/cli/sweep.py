"""Run the trials that a W&B sweep file defines, without a W&B server.

    contrastive-encoders sweep configs/sweeps/NAME.yaml output=FOLDER trials=20 data.path=FILE

Optuna performs the search: grid, random, or bayes (TPE), optionally with hyperband. A trial gets
the same arguments that a W&B agent would pass. After an interruption, run the same command again
to resume. --config-dir=FOLDER adds configs, and all arguments other than the keys below are passed
to each training run.
"""

import argparse
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from contrastive_encoders.cli.hydra_main import run_without_hydra
from contrastive_encoders.comparison.compare_config import WorkersConfig
from contrastive_encoders.comparison.run_scheduler import (
    CHECKPOINTS,
    Job,
    JobResult,
    open_workers,
    remove_matching,
    run_all,
)
from contrastive_encoders.comparison.sweep_file import Sweep, read_sweep
from contrastive_encoders.core import InputError, check_local_output, missing_package
from contrastive_encoders.core.config_schema import config_field, require
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.runtime.child_processes import check_number
from contrastive_encoders.training.composition.config_errors import explain_errors
from contrastive_encoders.training.composition.config_files import CONFIGS, choices
from contrastive_encoders.training.composition.config_keys import config_from_arguments
from contrastive_encoders.training.composition.override_checks import (
    check_config_folders,
    check_single_choices,
    refuse_option,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SweepConfig(WorkersConfig):
    """Configuration keys of ``contrastive-encoders sweep``. All other arguments are passed to each training run."""

    output: str | None = config_field(None, "output directory of the Optuna study and its training runs")
    trials: int | None = config_field(
        None,
        "number of trials; null: the number in the sweep file, or the complete grid if the file contains no number",
        ge=1,
    )
    seed: int = config_field(1, "random seed of the search", ge=1)


class SweepCommand(NamedTuple):
    config: SweepConfig
    sweep: Sweep
    output: Path
    overrides: list[str]  # for train
    options: list[str]  # for Hydra in each trial; not part of a study's identity, so the directory may be moved


def read_arguments(arguments: Sequence[str]) -> SweepCommand:
    """Parse the arguments of the command.

    Raises:
        InputError: there is no sweep file or output, or a value is invalid.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse_option  # type: ignore[method-assign]
    parser.add_argument("--config-dir", "-cd", action="append", default=[], type=Path)
    known, rest = parser.parse_known_args(arguments)
    check_config_folders(known.config_dir)
    if others := [argument for argument in rest if argument.startswith("-")]:
        raise InputError(key=others[0], expected="no option other than --config-dir=FOLDER", hint="Remove this option.")
    config, rest = config_from_arguments(SweepConfig, rest)
    files = [argument for argument in rest if "=" not in argument]
    examples = f"{CONFIGS / 'sweeps'} contains {', '.join(f'{name}.yaml' for name in choices('sweeps'))}."
    if len(files) != 1:
        expected = "the path of one sweep file, without a key"
        raise InputError(key="FILE", value=" ".join(files) or None, expected=expected, hint=examples)
    if not Path(files[0]).is_file():
        raise InputError(key="FILE", value=files[0], expected="a sweep file that exists", hint=examples)
    require(config, "output", "the directory of the study")
    check_local_output("output", str(config.output))
    check_single_choices("train", rest)
    if config.cluster is None:
        check_number("parallel", config.parallel)
    return SweepCommand(
        config,
        read_sweep(Path(files[0])),
        Path(str(config.output)).expanduser(),
        list({argument.partition("=")[0]: argument for argument in rest if "=" in argument}.values()),
        [f"--config-dir={folder.absolute()}" for folder in known.config_dir],
    )


def run(arguments: Sequence[str]) -> int:
    """Run all unfinished trials of the sweep. Return the exit code: 1 if a trial failed twice."""
    command = read_arguments(arguments)
    config = command.config
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise missing_package("optuna", "sweep", location="sweep") from error
    from contrastive_encoders.comparison.study import Trials

    with open_workers(command.output, config.parallel, config.cluster, config.num_cpus, config.num_gpus) as pool:
        trials = Trials(command.sweep, command.output, command.overrides, config.trials, config.seed, command.options)
        log.info("Finished trials: %d of %d; %s", trials.count_finished(), trials.total, command.output)
        if refused := trials.refused_folders():
            folders = shlex.join(map(str, refused))
            log.warning(
                "Skipped %s that an earlier command rejected. To run again: rm -r %s",
                count_of(len(refused), "trial"),
                folders,
            )

        def record(job: Job, done: JobResult) -> None:
            trials.record(job, done)
            if not config.keep_checkpoints and (done.finished or done.stop_reason):
                remove_matching(job.folder, CHECKPOINTS)
            log.info("%s: %s in %.0f s", done.name, done.describe(), done.seconds)

        done = run_all(pool, trials.jobs(), command.output / "trials.jsonl", record, trials.stop_reason)
        for folder in (
            trials.ended_folders() if not config.keep_checkpoints else []
        ):  # including those of an earlier command
            remove_matching(folder, CHECKPOINTS)
        best, finished = trials.best(), trials.count_finished()
    failed = [one for one in done if one.failed]
    for one in failed:
        log.warning("%s failed: %s", one.name, one.output_tail)
    if best:
        log.info("best %s: %.2f with %s", command.sweep.metric, *best)
    if failed and not finished and all(one.status == 2 for one in failed):
        raise InputError(f"No trial finished, because every config is invalid. {failed[0].output_tail}")
    if finished:
        overrides = (f"runs=[{command.output}/runs/*]", f"output={command.output / 'comparison'}")
        log.info("Compare: contrastive-encoders compare %s", shlex.join(overrides))
    else:
        log.warning("No trial finished, so there are no runs to compare.")
    return 1 if failed else 0


def main(arguments: Sequence[str], command: str = "sweep") -> None:
    run_without_hydra(command, run, arguments, __doc__, SweepConfig, explain=explain_errors("train", arguments))
