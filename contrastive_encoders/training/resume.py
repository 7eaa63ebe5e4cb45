"""Compare a checkpoint with the config of the run that resumes from it.

Weights, moments, and counts come from the checkpoint. Every setting comes from the config. Settings on which the
restored tensors depend cannot be changed.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_encoders.core import InputError, ResumedSettings
from contrastive_encoders.core.override_format import format_override
from contrastive_encoders.encoders.optimizers import make_schedule, planned_steps
from contrastive_encoders.io.model_names import run_folder
from contrastive_encoders.training.changed_settings import DURATION_KEYS, SettingChange, changes, described

CONFIG_ENTRY, RATES_DIFFER, RESUMED = "config", "rates_differ", "resumed"  # entries of a checkpoint
LR_KEYS = (
    *DURATION_KEYS,
    "model.lr",
    "model.lr_schedule",
    "model.warmup_ratio",
    "model.schedule_ratio",
    "model.layer_decay",
    "model.head_lr",
)
LR_GROUP_KEYS = ("model.layer_decay", "model.head_lr")  # keys that give some weights another learning rate


class Resumption(NamedTuple):
    """The checkpoint from which a run is resumed, and the settings that have changed since it was saved."""

    path: str
    step: int
    changed: list[SettingChange]
    total_steps: int
    rates_differ: bool  # whether earlier steps had different learning rates than the current schedule
    earlier: list[ResumedSettings]  # changes of earlier resumptions

    @property
    def history(self) -> list[ResumedSettings]:
        """All changes of settings in this and earlier resumptions, in chronological order."""
        now = ResumedSettings(step=self.step, changed={one.key: [one.before, one.now] for one in self.changed})
        return [*self.earlier, now] if self.changed else self.earlier

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, text) for the lines of the startup summary about the resumption."""
        yield "resumed", f"from {self.path}, step {self.step:,}"
        if self.changed:
            yield "changed", "; ".join(f"{one.key}={one.shown_now} (was {one.shown_before})" for one in self.changed)
        if any(one.key in LR_KEYS for one in self.changed) or self.rates_differ:
            first = f"the first {self.step:,} had" if self.step > 1 else "the first had"
            yield (
                "schedule",
                f"over {self.total_steps:,} steps; {first} other learning rates than in an uninterrupted run"
                if self.rates_differ
                else f"over {self.total_steps:,} steps; {first} the same learning rates as in an uninterrupted run",
            )


def check_settings(path: str, checkpoint: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
    """Check that the settings that determine the tensors of a checkpoint have the same values in the config as in the
    checkpoint.

    Raises:
        InputError: one of these settings has changed.
    """
    fixed = [
        one for one in changes(checkpoint.get(CONFIG_ENTRY, recipe), recipe) if one.is_fixed and not _is_moved(one)
    ]
    if not fixed:
        return
    before = " ".join(format_override(one.key, one.shown_before) for one in fixed)
    run = Path(path).parent.parent
    new_run = f" To start a new run from its weights, set {format_override('backbone', str(run))} without resume."
    raise InputError(
        key="resume",
        value=path,
        expected=f"the same settings as in this checkpoint: {described(fixed)}",
        hint=f"To resume, set {before}.{new_run if run_folder(str(run)) else ''}",
    )


def resumption(
    path: str, checkpoint: Mapping[str, Any], recipe: Mapping[str, Any], folder: Path, batches: int, examples: int
) -> Resumption:
    """Compare a checkpoint with the run that is resumed from it, and return the differences.

    Args:
        recipe: all keys of the run.
        folder: the run directory.
        batches: number of steps per epoch.
        examples: number of training examples.

    Raises:
        InputError: no steps are left to train, and the checkpoint belongs to another run.
    """
    step, before = int(checkpoint["global_step"]), checkpoint.get(CONFIG_ENTRY, recipe)
    total, rate = _rates(recipe, batches, examples)
    if step >= total and folder.resolve() not in Path(path).resolve().parents:
        by_steps = recipe["trainer"]["max_steps"] > 0
        minimum = step + 1 if by_steps else math.ceil((step + 1) / batches)
        key = DURATION_KEYS[0] if by_steps else DURATION_KEYS[1]
        raise InputError(
            key=key,
            value=recipe["trainer"][key],
            expected=f"at least {minimum}, since the run resumes from step {step} of {path}",
            hint=f"Set {key}={minimum} or more.",
        )
    changed = changes(before, recipe)
    differ = bool(checkpoint.get(RATES_DIFFER)) or any(one.key in LR_GROUP_KEYS for one in changed)
    if not differ and any(one.key in LR_KEYS for one in changed):
        _, rate_before = _rates(before, batches, examples)
        differ = any(rate_before(done) != rate(done) for done in range(step))
    return Resumption(path, step, changed, total, differ, checkpoint.get(RESUMED, []))


def as_entry(recipe: Mapping[str, Any]) -> Any:
    """Convert the keys of a run to types that a checkpoint may contain."""
    return json.loads(json.dumps(recipe, default=str))


def _rates(recipe: Mapping[str, Any], batches: int, examples: int) -> tuple[int, Callable[[int], float]]:
    """Return the planned number of steps, and a function that maps the number of completed steps to the
    learning rate.
    """
    model, trainer = recipe["model"], recipe["trainer"]
    total = planned_steps(trainer["max_steps"], trainer["max_epochs"], batches)
    factor = make_schedule(
        model["lr_schedule"],
        total_steps=total,
        steps_per_epoch=batches,
        epochs=math.ceil(total / batches),
        instances=examples,
        warmup_ratio=model["warmup_ratio"],
        ratio=model["schedule_ratio"],
    )
    return total, lambda done: model["lr"] * factor(done)


def _is_moved(one: SettingChange) -> bool:
    """Return whether the changed setting is the path of a backbone or a teacher that was moved: the previous and the
    current path end in the same name.
    """
    names: Sequence[str] = [Path(str(value)).name for value in (one.before, one.now)]
    return one.key.removeprefix("model.") in ("backbone", "teacher") and names[0] == names[1]
