"""Task specifications of DINO: labels, their instructions, and counter labels for self-debiasing.

The schema is that of DINO's published JSON (Schick and Schuetze 2021), in YAML or JSON: ``task_name``, and ``labels``
with ``instruction`` and ``counter_labels``. A label may also have ``decay`` and ``epsilon`` for self-debiasing.
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
from contrastive_encoders.io.file_discovery import local_path

X1 = "<X1>"
STOP = '"'
TASK_NAME = re.compile(r"[A-Za-z0-9\-_.]+")


class Label(NamedTuple):
    """A label, and the instruction by which texts are written for it."""

    name: str
    instruction: str  # ends in the opening quotation mark of the text
    counters: tuple[str, ...] = ()  # names of labels
    decay: float | None = None  # lambda; None: the value of the run
    epsilon: float | None = None


class TaskSpec(NamedTuple):
    """Specification of a task: its labels and their instructions. It writes first sentences (x1) if no instruction
    contains ``<X1>``, and x2 for a given x1 if all do.
    """

    task_name: str
    labels: tuple[Label, ...]

    @property
    def takes_input(self) -> bool:
        return X1 in self.labels[0].instruction

    def debiases(self, decay: float) -> bool:
        """Return whether any label uses self-debiasing. ``decay`` is the value for labels that set none."""
        return any(label.counters and (decay if label.decay is None else label.decay) > 0 for label in self.labels)

    def label(self, name: str) -> Label:
        return next(label for label in self.labels if label.name == name)

    def prompt(self, label: Label, x1: str | None) -> str:
        """Return the prompt for a label: its instruction, with ``x1`` in place of ``<X1>``."""
        return label.instruction if x1 is None else label.instruction.replace(X1, x1)

    def counter_prompts(self, label: Label, x1: str | None) -> tuple[str, ...]:
        return tuple(self.prompt(self.label(name), x1) for name in label.counters)

    def to_json(self) -> dict[str, Any]:
        """Convert the task to the published JSON schema, with the keys ``decay`` and ``epsilon`` where they are set."""
        labels = {}
        for label in self.labels:
            entry: dict[str, Any] = {"instruction": label.instruction, "counter_labels": list(label.counters)}
            entry |= {name: getattr(label, name) for name in ("decay", "epsilon") if getattr(label, name) is not None}
            labels[label.name] = entry
        return {"task_name": self.task_name, "labels": labels}


class Tasks(NamedTuple):
    """The task that writes first sentences, the task that writes second sentences, or both."""

    x1: TaskSpec | None
    x2: TaskSpec | None


def choose_tasks(recipe: Mapping[str, Any], spec: str | None) -> Tasks:
    """Return the tasks of the file ``spec``, or of the recipe if there is no file.

    The file contains a spec, or two specs under the keys x1 and x2.

    Raises:
        InputError: There are no tasks, they are not those that the recipe writes, or a spec is invalid.
    """
    by_recipe = {key: recipe[key] for key in ("x1", "x2") if recipe.get(key)}
    if spec is None:
        if not by_recipe:
            raise InputError(
                key="recipe",
                value=recipe["name"],
                expected="dino_x1 (first sentences), dino_x2 (second sentences), dino_x1x2 (both), or a custom spec",
            )
        return _tasks(by_recipe, f"recipe {recipe['name']}")
    found = read_spec_file(spec)
    own = found if set(found) <= {"name", "x1", "x2"} and {"x1", "x2"} & set(found) else None
    if own is None:
        parsed = parse_spec(found, f"spec={spec}")
        own = {"x2" if parsed.takes_input else "x1": found}
    tasks = _tasks({key: own[key] for key in ("x1", "x2") if key in own}, f"spec={spec}")
    if by_recipe and by_recipe.keys() != set(own) - {"name"}:
        writes = " and ".join(sorted(set(own) - {"name"}))
        raise InputError(
            key="spec",
            value=spec,
            expected=f"a spec for {' and '.join(sorted(by_recipe))}, the sentences that {recipe['name']} writes, "
            f"instead of a spec for {writes}",
            hint="Leave recipe out, because the spec replaces the recipe.",
        )
    return tasks


def _tasks(found: Mapping[str, Any], where: str) -> Tasks:
    specs = {}
    for key, value in found.items():
        if not isinstance(value, Mapping):
            expected = "a task spec with task_name and labels"
            raise InputError(key=key, value=value, expected=expected, location=where)
        specs[key] = parse_spec(value, where if len(found) == 1 else f"{where}, {key}")
        if specs[key].takes_input != (key == "x2"):
            use = "without" if key == "x1" else "with"
            raise InputError(key=key, expected=f"instructions {use} {X1}", location=where)
    return Tasks(specs.get("x1"), specs.get("x2"))


def read_spec_file(path: str | Path, key: str = "spec") -> dict[str, Any]:
    """Read the YAML or JSON file that the config key ``key`` names.

    Raises:
        InputError: The file does not exist, is not UTF-8, or is not a YAML or JSON mapping.
    """
    path = local_path(path, key)
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError(key=key, value=path, expected="an existing YAML or JSON file") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(key=key, value=error, expected="YAML or JSON", location=str(path)) from None
    if not isinstance(found, dict):
        raise InputError(key=key, value=type(found).__name__, expected="a mapping", location=str(path))
    return found


@dataclass(frozen=True, kw_only=True)
class SpecKeys:
    """Configuration keys of a task spec in a YAML or JSON file."""

    task_name: str
    labels: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LabelKeys:
    """Configuration keys of a label in a task spec file."""

    instruction: str
    counter_labels: Sequence[Any] | None = None
    decay: float | None = config_field(
        None, "decay constant lambda of self-debiasing for this label; null: the key `decay` of the recipe", ge=0
    )
    epsilon: float | None = config_field(
        None, "lower bound of the factors of self-debiasing for this label; null: the key `epsilon`", ge=0, le=1
    )


def parse_spec(found: Mapping[Any, Any], where: str) -> TaskSpec:
    """Parse and check a task spec.

    Raises:
        InputError: An entry is missing, unknown, or unusable.
    """
    keys = build(SpecKeys, found, f"{where}: ")
    if not TASK_NAME.fullmatch(keys.task_name):
        expected = "letters, digits, and -_. only, such as sts-x2"
        raise InputError(key="task_name", value=keys.task_name, expected=expected, location=where)
    labels = tuple(_label(str(key), value, where) for key, value in keys.labels.items())
    names = [label.name for label in labels]
    if not names or len(set(names)) < len(names):
        value = ", ".join(names) or "none"
        raise InputError(key="labels", value=value, expected="one or more labels with different names", location=where)
    for label in labels:
        if unknown := [counter for counter in label.counters if counter not in names]:
            raise InputError(
                key=f"labels.{label.name}.counter_labels",
                value=unknown[0],
                expected=f"one of the labels {', '.join(names)}",
                location=where,
            )
    _check_placeholders(labels, where)
    return TaskSpec(keys.task_name, labels)


def _label(name: str, value: Any, where: str) -> Label:
    keys = build(LabelKeys, value, f"{where}: labels.{name}.")
    if not keys.instruction.endswith(STOP):
        raise InputError(
            key=f"labels.{name}.instruction",
            value=repr(keys.instruction[-12:]),
            expected=f"a straight quotation mark {STOP} at the end, which opens the text to write",
            location=where,
        )
    counters = tuple(map(str, keys.counter_labels or ()))
    return Label(name, keys.instruction, counters, keys.decay, keys.epsilon)


def _check_placeholders(labels: tuple[Label, ...], where: str) -> None:
    """Check that every instruction contains ``<X1>`` exactly once, or that none contains it."""
    counts = {label.name: label.instruction.count(X1) for label in labels}
    wanted = 1 if any(counts.values()) else 0
    for name, count in counts.items():
        if count != wanted:
            raise InputError(
                key=f"labels.{name}.instruction",
                value=f"{count} times",
                expected=f"{X1} once in every instruction (second sentences), or in no instruction (first sentences)",
                location=where,
            )
