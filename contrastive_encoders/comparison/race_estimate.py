"""Estimate the duration of a race from a few training steps in a temporary folder."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.comparison.collect import read_run
from contrastive_encoders.comparison.hyperparameter_selection import selection_of
from contrastive_encoders.comparison.race import amount_of_a_step, pilot_overrides, plan
from contrastive_encoders.comparison.race_data import commands_of, needed, prepare, race_overrides
from contrastive_encoders.comparison.run_scheduler import Job, open_workers, run_all
from contrastive_encoders.comparison.tables import duration
from contrastive_encoders.core import InputError
from contrastive_encoders.core.counts import count_of
from contrastive_encoders.core.override_format import format_override

log = logging.getLogger(__name__)

STEPS = 6  # the first steps are slower
FORWARD_FRACTION = 1 / 3  # time of a forward pass, as a fraction of a training step
TEXTS_PER_PAIR = 2  # scoring encodes documents, and one of the two texts is a document


def estimate(
    race: Mapping[str, Any],
    budget: Mapping[str, Any] | None,
    seeds: Sequence[int] | None,
    folder: Path,
    parallel: int,
    options: Sequence[str],
) -> None:
    """Run the first `generate` command and a few training steps, and log an estimate of the total duration of the
    race's runs.

    Args:
        race: keys of the race, with ``estimate_only`` set for the first of its data commands.
        budget: budget of each run; None: the budget in ``race``.
        seeds: seeds of the compared runs; None: the seeds in ``race``.
        folder: an empty folder for temporary files.
        parallel: number of runs at the same time.
        options: options of Hydra for each run.

    Raises:
        InputError: the race or its texts are invalid.
    """
    where = f"race={race.get('name', '?')}"
    commands = list(needed(commands_of(race.get("prepare"), where), race_overrides(race)).items())
    choice, race_plan = selection_of(race, where), plan(race, budget, seeds, folder)
    prepare(dict(commands[:1]), options)
    if race.get("plan_run") is None:
        log.info("The training time is not estimated, because %s has no plan_run.", where)
        return
    cache = format_override("data.cache_dir", str(folder))
    overrides = [*map(str, race.get("common") or []), *map(str, race["plan_run"]), cache]
    job = Job(
        "pilot", [*options, *overrides, *pilot_overrides(STEPS, 1, race_plan.seeds[0])], folder / "pilots" / "plan"
    )
    log.info("Training %d steps to estimate the time of all runs.", STEPS)
    with open_workers(folder) as pool:
        [result] = run_all(pool, [job], folder / "runs.jsonl")
    if not result.finished:
        raise InputError(
            key="race.plan_run",
            expected="overrides of a training run that succeeds",
            location=where,
            hint=result.output_tail,
        )
    run = read_run(job.folder)
    step, (kind, amount) = amount_of_a_step(run, "seconds"), race_plan.budget
    spent = run.results["cost"]
    training = amount if kind == "seconds" else step * amount / (1 if kind == "steps" else amount_of_a_step(run, kind))
    examples = max((part.get("kept", 0) for part in run.results["data"]), default=0)
    scoring = step * spent["steps"] / max(1, spent["examples"]) * examples * FORWARD_FRACTION / TEXTS_PER_PAIR
    startup = max(0.0, result.seconds - spent["wall_seconds"])
    selection_runs = sum(len(choice.values[label]) for label in race_plan.arms) if choice else 0
    compared_runs = len(race_plan.arms) * len(race_plan.seeds) + 1
    pilots = len(race_plan.arms) if kind != "steps" else 0
    total = pilots * (startup + STEPS * step) + (selection_runs + compared_runs) * (startup + training + scoring)
    log.info(
        "Training: %s%s to compare, %s each; about %s in total%s.",
        f"{count_of(selection_runs, 'run')} to select {choice.key}, " if choice else "",
        count_of(compared_runs, "run"),
        duration(startup + training + scoring),
        duration(total / parallel),
        f", {parallel} at a time" if parallel > 1 else "",
    )
    if commands[1:]:
        log.info("Not included in the estimate: %s.", ", ".join(f"race.prepare.{name}" for name, _ in commands[1:]))
    log.info("Nothing was kept. Remove race.estimate_only to start the race.")
