"""Task specifications: labels, their instructions, and the labels for self-debiasing.

The schema is that of DINO's published JSON (Schick and Schuetze 2021), in YAML or JSON: ``task_name``, and ``labels``
with ``instruction`` and ``counter_labels``. A label may have its own ``decay`` and ``epsilon`` for self-debiasing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import build, config_field
from contrastive_encoders.io.file_discovery import local

X1 = "<X1>"
STOP = '"'
TASK_NAME = re.compile(r"[A-Za-z0-9\-_.]+")


class Label(NamedTuple):
    """Label, and how texts for it are written."""

    name: str
    instruction: str  # ends in the opening quotation mark of the text
    counters: tuple[str, ...] = ()  # names of labels
    decay: float | None = None  # lambda; None: the value of the run
    epsilon: float | None = None


class TaskSpec(NamedTuple):
    """Task. It writes x1 if no instruction contains ``<X1>``, and x2 for a given x1 if all do."""

    task_name: str
    labels: tuple[Label, ...]

    @property
    def takes_input(self) -> bool:
        return X1 in self.labels[0].instruction

    def debiases(self, decay: float) -> bool:
        """Return whether any text is written with counter prompts, given the decay of labels without their own."""
        return any(label.counters and (decay if label.decay is None else label.decay) > 0 for label in self.labels)

    def label(self, name: str) -> Label:
        return next(label for label in self.labels if label.name == name)

    def prompt(self, label: Label, x1: str | None) -> str:
        """Return the text to continue."""
        return label.instruction if x1 is None else label.instruction.replace(X1, x1)

    def counter_prompts(self, label: Label, x1: str | None) -> tuple[str, ...]:
        return tuple(self.prompt(self.label(name), x1) for name in label.counters)

    def to_json(self) -> dict[str, Any]:
        """Return the published schema, with this project's additions if they are used."""
        labels = {}
        for label in self.labels:
            entry: dict[str, Any] = {"instruction": label.instruction, "counter_labels": list(label.counters)}
            entry |= {name: getattr(label, name) for name in ("decay", "epsilon") if getattr(label, name) is not None}
            labels[label.name] = entry
        return {"task_name": self.task_name, "labels": labels}


class Tasks(NamedTuple):
    """Tasks for first sentences, second sentences, or both."""

    x1: TaskSpec | None
    x2: TaskSpec | None


def choose_tasks(recipe: Mapping[str, Any], spec: str | None) -> Tasks:
    """Return the recipe's tasks, or those of the user's file: a spec, or several under x1 and x2.

    Raises:
        InputError: Neither is given, the tasks do not fit together, or a spec is invalid.
    """
    by_recipe = {key: recipe[key] for key in ("x1", "x2") if recipe.get(key)}
    if spec is None:
        if not by_recipe:
            raise InputError(
                key="recipe",
                value=recipe["name"],
                expected="dino_x1 (first sentences), dino_x2 (second ones), dino_x1x2 (both), or a spec of your own",
            )
        return _tasks(by_recipe, f"recipe {recipe['name']}")
    found = read_spec_file(spec)
    own = found if set(found) <= {"name", "x1", "x2"} and {"x1", "x2"} & set(found) else None
    if own is None:
        parsed = parse_spec(found, f"spec={spec}")
        own = {"x2" if parsed.takes_input else "x1": found}
    tasks = _tasks({key: own[key] for key in ("x1", "x2") if key in own}, f"spec={spec}")
    if by_recipe and by_recipe.keys() != set(own) - {"name"}:
        raise InputError(
            f"spec={spec} writes {' and '.join(sorted(set(own) - {'name'}))}, which is not what "
            f"recipe={recipe['name']} writes. Leave recipe out: the spec replaces it."
        )
    return tasks


def _tasks(found: Mapping[str, Any], where: str) -> Tasks:
    specs = {}
    for key, value in found.items():
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: {key} is {value!r}; wanted a task spec with task_name and labels.")
        specs[key] = parse_spec(value, where if len(found) == 1 else f"{where}, {key}")
        if specs[key].takes_input != (key == "x2"):
            raise InputError(
                f"{where}: the instructions of {key} {'hold' if key == 'x1' else 'do not hold'} <X1>. First "
                "sentences are written without it, second ones with it."
            )
    return Tasks(specs.get("x1"), specs.get("x2"))


def read_spec_file(path: str | Path, key: str = "spec") -> dict[str, Any]:
    """Return the content of the YAML or JSON file that ``key`` names.

    Raises:
        InputError: The file does not exist, is not UTF-8, or is not a YAML or JSON mapping.
    """
    path = local(path, key)
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError(f"{key}={path}: there is no such file. Name one in YAML or JSON.") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{key}={path}: wanted YAML or JSON, got: {error}. Correct the file.") from None
    if not isinstance(found, dict):
        raise InputError(f"{key}={path}: wanted a mapping, got {type(found).__name__}.")
    return found


@dataclass(frozen=True, kw_only=True)
class SpecKeys:
    """Keys of a spec in a file."""

    task_name: str
    labels: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LabelKeys:
    """Keys of a label in a file."""

    instruction: str
    counter_labels: Sequence[Any] | None = None
    decay: float | None = config_field(None, ge=0)
    epsilon: float | None = config_field(None, ge=0, le=1)


def parse_spec(found: Mapping[Any, Any], where: str) -> TaskSpec:
    """Check and parse a spec.

    Raises:
        InputError: An entry is missing, unknown, or unusable.
    """
    keys = build(SpecKeys, found, f"{where}: ")
    if not TASK_NAME.fullmatch(keys.task_name):
        raise InputError(
            f"{where}: task_name is {keys.task_name!r}; wanted letters, digits and -_. only, for instance sts-x2."
        )
    labels = tuple(_label(str(key), value, f"{where}: labels.{key}") for key, value in keys.labels.items())
    names = [label.name for label in labels]
    if not names or len(set(names)) < len(names):
        raise InputError(f"{where}: wanted labels, each of another name, got {', '.join(names) or 'none'}.")
    for label in labels:
        if unknown := [counter for counter in label.counters if counter not in names]:
            raise InputError(
                f"{where}: label {label.name!r} has the counter label {unknown[0]!r}, which is none of the labels "
                f"{', '.join(names)}. Name one of them."
            )
    _check_placeholders(labels, where)
    return TaskSpec(keys.task_name, labels)


def _label(name: str, value: Any, where: str) -> Label:
    keys = build(LabelKeys, value, f"{where}.")
    if not keys.instruction.endswith(STOP):
        raise InputError(
            f"{where}: the instruction ends in {keys.instruction[-12:]!r}. It must end in a straight quotation mark "
            f"{STOP}, without a blank behind it: the text that is written runs to the next one."
        )
    counters = tuple(map(str, keys.counter_labels or ()))
    return Label(name, keys.instruction, counters, keys.decay, keys.epsilon)


def _check_placeholders(labels: tuple[Label, ...], where: str) -> None:
    """Check that ``<X1>`` occurs exactly once in all instructions, or in none."""
    counts = {label.name: label.instruction.count(X1) for label in labels}
    wanted = 1 if any(counts.values()) else 0
    for name, count in counts.items():
        if count != wanted:
            raise InputError(
                f"{where}: label {name!r}: the instruction holds {X1} {count} times. Wanted once in every label, for "
                "tasks that take a text, or in none, for tasks that write it."
            )
