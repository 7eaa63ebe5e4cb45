"""From the values of the command line to the stages that they ask for."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from contracts import InputError
from synthesis.decoding.continuations import Decoding
from synthesis.recipes.dino import Plan, x1_units, x2_units
from synthesis.recipes.dino_stage import DinoStage
from synthesis.recipes.spec import TaskSpec, parse_spec, read_spec_file
from synthesis.rules.filters import NearDuplicates
from synthesis.sentences.inputs import Inputs, Summary
from synthesis.shards.stage import Stage
from synthesis.shards.store import read_entries

TOP_K = {"x1": 0, "x2": 5}  # published
PER_LABEL = {"overgenerate": 5, "retry": 2}


class Tasks(NamedTuple):
    """What is written: first sentences, second ones, or both."""

    x1: TaskSpec | None
    x2: TaskSpec | None


def choose_tasks(recipe: Mapping[str, Any] | None, spec: str | None) -> Tasks:
    """The recipe's tasks, or those of the user's file: a spec, or several under x1 and x2.

    Raises:
        InputError: neither is given, they do not fit, or a spec is wrong.
    """
    if spec is None:
        if recipe is None:
            raise InputError(
                "recipe is not set: say recipe=dino_x1 (first sentences), dino_x2 (second ones for input=FILE), "
                "dino_x1x2 (both), or spec=FILE for a task of your own."
            )
        return _tasks({key: recipe[key] for key in ("x1", "x2") if recipe.get(key)}, f"recipe {recipe['name']}")
    found = read_spec_file(spec)
    own = found if set(found) <= {"name", "x1", "x2"} and {"x1", "x2"} & set(found) else None
    if own is None:
        parsed = parse_spec(found, f"spec={spec}")
        own = {"x2" if parsed.takes_input else "x1": found}
    tasks = _tasks({key: own[key] for key in ("x1", "x2") if key in own}, f"spec={spec}")
    if recipe is not None and {key for key in ("x1", "x2") if recipe.get(key)} != {
        key for key in ("x1", "x2") if key in own
    }:
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


@dataclass(frozen=True)
class Texts:
    """First sentences, near-duplicates left out where that is asked for."""

    source: Iterable[str]
    near_duplicate: float | None = None

    def __iter__(self) -> Iterator[str]:
        if self.near_duplicate is None:
            yield from self.source
            return
        seen = NearDuplicates(self.near_duplicate)
        yield from (text for text in self.source if seen.is_new(text))

    def number(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class WrittenTexts:
    """The first sentences that a stage wrote."""

    folder: Path

    def __iter__(self) -> Iterator[str]:
        yield from (entry["text_a"] for entry in read_entries(self.folder))


class Values(NamedTuple):
    """What decides a data set, beside its tasks and inputs."""

    generator: Mapping[str, Any]  # name, and what identifies its weights
    precision: str
    chat_template: bool
    how: Decoding  # top_k None: as published for the task
    plan: Plan
    shard_size: int
    versions: Mapping[str, str]


def x1_stage(folder: Path, spec: TaskSpec, number: int, values: Values) -> Stage:
    plan = values.plan._replace(per_label=1, max_tries=max(values.plan.max_tries, 1))
    if plan.strategy == "overgenerate":
        plan = plan._replace(max_tries=1)
    return _stage(folder, "x1", spec, lambda: x1_units(spec, number), number, {"num_x1": number}, plan, values)


def x2_stage(
    folder: Path, spec: TaskSpec, texts: Texts, number: int, given: Mapping[str, Any], values: Values
) -> Stage:
    """``given`` identifies the texts."""
    return _stage(folder, "x2", spec, lambda: x2_units(spec, texts), number, given, values.plan, values)


def from_file(inputs: Inputs, summary: Summary, plan: Plan) -> tuple[Texts, int, dict[str, Any]]:
    """The texts of a file, how many, and what identifies them."""
    texts = Texts(inputs, plan.filters.near_duplicate_x1)
    number = summary.texts if texts.near_duplicate is None else texts.number()
    return texts, number, {"sha256": summary.sha256, "type": inputs.kind, "texts": number, "blank": summary.blank}


def from_stage(stage: Stage) -> tuple[Texts, int, dict[str, Any]]:
    """The same of a stage of first sentences. Its identity alone identifies them."""
    identity = json.dumps(stage.identity, sort_keys=True).encode()
    texts = Texts(WrittenTexts(stage.folder))
    return texts, texts.number(), {"x1": hashlib.sha256(identity).hexdigest()}


def _stage(
    folder: Path,
    kind: str,
    spec: TaskSpec,
    units: Any,
    number: int,
    given: Mapping[str, Any],
    plan: Plan,
    values: Values,
) -> Stage:
    top_k = TOP_K[kind] if values.how.top_k is None else values.how.top_k
    abandon = "" if plan.filters.allow_newlines else "\n"
    how = replace(values.how, top_k=top_k, abandon=abandon)
    decoding = {name: value for name, value in asdict(how).items() if name not in ("rows", "token_budget", "abandon")}
    identity = {
        "kind": kind,
        "spec": spec.to_json(),
        "generator": values.generator["weights"],
        "precision": values.precision,
        "chat_template": values.chat_template,
        "decoding": decoding,
        "plan": {**plan._asdict(), "filters": plan.filters._asdict()},
        "input": dict(given),
        "shard_size": values.shard_size,
    }
    about = {"generator": dict(values.generator), "versions": dict(values.versions)}
    return DinoStage(folder, spec.task_name, how, number, values.shard_size, identity, about, spec, plan, units)
