"""Estimate how long a race takes, from a few steps of one run in a temporary folder."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.comparison.collect import read_run
from contrastive_encoders.comparison.hyperparameter_selection import choice_of
from contrastive_encoders.comparison.race import amount_of_a_step, pilot_words, plan
from contrastive_encoders.comparison.race_data import commands_of, needed, prepare, words_of
from contrastive_encoders.comparison.run_scheduler import Job, open_workers, run_all
from contrastive_encoders.comparison.tables import duration
from contrastive_encoders.composition.config_keys import format_override
from contrastive_encoders.core import InputError

log = logging.getLogger(__name__)

STEPS = 6  # the first steps are slower
FORWARD = 1 / 3  # time of a forward pass, as a fraction of a training step
TEXTS_OF_A_PAIR = 2  # scoring encodes documents, and one of the two texts is a document


def estimate(
    race: Mapping[str, Any],
    budget: Mapping[str, Any] | None,
    seeds: Sequence[int] | None,
    folder: Path,
    parallel: int,
    options: Sequence[str],
) -> None:
    """Log the estimated time of all runs and of the first command that prepares data.

    Args:
        race: keys of the race, with ``estimate_only`` for the first of its commands.
        budget: budget of each run; None: the race's own.
        seeds: seeds of the compared runs; None: the race's own.
        folder: an empty folder for temporary files.
        parallel: number of runs at the same time.
        options: options of Hydra for each run.

    Raises:
        InputError: the race or its texts are invalid.
    """
    where = f"race={race.get('name', '?')}"
    commands = list(needed(commands_of(race.get("prepare"), where), words_of(race)).items())
    choice, planned = choice_of(race, where), plan(race, budget, seeds, folder)
    prepare(dict(commands[:1]), options)
    if race.get("plan_run") is None:
        log.info("Training is not estimated: %s has no plan_run.", where)
        return
    cache = format_override("data.cache_dir", str(folder))
    words = [*map(str, race.get("common") or []), *map(str, race["plan_run"]), cache]
    job = Job("pilot", [*options, *words, *pilot_words(STEPS, 1, planned.seeds[0])], folder / "pilots" / "plan")
    with open_workers(folder) as pool:
        [done] = run_all(pool, [job], folder / "runs.jsonl")
    if not done.finished:
        raise InputError(key="race.plan_run", expected="a run that can be trained", location=where, hint=done.said)
    run = read_run(job.folder)
    step, (kind, amount) = amount_of_a_step(run, "seconds"), planned.budget
    spent = run.results["spent"]
    training = amount if kind == "seconds" else step * amount / (1 if kind == "steps" else amount_of_a_step(run, kind))
    examples = max((part.get("kept", 0) for part in run.results["data"]), default=0)
    scoring = step * spent["steps"] / max(1, spent["examples"]) * examples * FORWARD / TEXTS_OF_A_PAIR
    starting = max(0.0, done.seconds - spent["wall_seconds"])
    chosen = sum(len(choice.values[label]) for label in planned.arms) if choice else 0
    compared = len(planned.arms) * len(planned.seeds) + 1
    pilots = len(planned.arms) if kind != "steps" else 0
    total = pilots * (starting + STEPS * step) + (chosen + compared) * (starting + training + scoring)
    log.info(
        "Training: %s%d runs are compared, each %s: about %s in all%s.",
        f"{chosen} runs choose {choice.key}, " if choice else "",
        compared,
        duration(starting + training + scoring),
        duration(total / parallel),
        f", {parallel} at a time" if parallel > 1 else "",
    )
    if commands[1:]:
        log.info("Not counted: %s.", ", ".join(f"race.prepare.{name}" for name, _ in commands[1:]))
    log.info("Nothing was kept. Leave race.estimate_only out to begin.")
