"""A sweep file in W&B's format, and its trials: what an agent would start one after the other."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from comparison.early import bands_of
from contracts import InputError

OTHERS_OF_A_COMMAND = ("${env}", "${interpreter}", "${program}", "${args_no_hyphens}", "python", "/usr/bin/env")
METHODS = ("grid", "random", "bayes")
RANDOM_TRIALS = 20  # where neither the command line nor run_cap says how many


class Trial(NamedTuple):
    place: int
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return f"trial {self.place}: " + " ".join(
            f"{key.rpartition('.')[2]}={value}" for key, value in self.values.items()
        )

    def words(self) -> list[str]:
        """As an agent writes ${args_no_hyphens}: ``KEY=VALUE``, in Python's spelling of the value."""
        return [f"{key}={value}" for key, value in self.values.items()]


class Sweep(NamedTuple):
    path: Path
    method: str
    metric: str
    goal: str
    parameters: dict[str, dict[str, Any]]
    words: list[str]  # of the command, the same for each trial
    early_terminate: dict[str, Any]
    bands: list[int]  # of early_terminate
    run_cap: int | None


def read_sweep(path: Path) -> Sweep:
    """
    Raises:
        InputError: no such file, no YAML, or not a sweep.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: wanted a sweep file of W&B, got: {error}. configs/sweeps has some.") from error
    if not isinstance(found, dict) or not isinstance(found.get("parameters"), dict) or not found["parameters"]:
        raise InputError(
            f"{path}: wanted method, metric and parameters, as W&B's sweeps have them. configs/sweeps has some."
        )
    method, metric = found.get("method"), found.get("metric") or {}
    if method not in METHODS:
        raise InputError(f"{path}: method {method!r} is unknown; choose {', '.join(METHODS)}.")
    command = found.get("command") or []
    if not any("${args_no_hyphens}" in str(word) for word in command):
        raise InputError(f"{path}: wanted a command with ${{args_no_hyphens}}, which is how train.py reads KEY=VALUE.")
    words = [str(word) for word in command if str(word) not in OTHERS_OF_A_COMMAND]
    for name, parameter in found["parameters"].items():
        if not isinstance(parameter, dict):
            raise InputError(f"{path}: parameter {name}: wanted value, values, or min and max; got {parameter!r}.")
    early = found.get("early_terminate") or {}
    if not isinstance(early, dict):
        raise InputError(f"{path}: early_terminate {early!r}: wanted type: hyperband with min_iter and eta.")
    return Sweep(
        path, method, str(metric.get("name", "")), str(metric.get("goal", "maximize")), found["parameters"], words,
        early, bands_of(early, path) if early else [], found.get("run_cap"),
    )  # fmt: skip


def trials_of(sweep: Sweep, number: int | None = None, seed: int = 1) -> list[Trial]:
    """All of a grid (the first ``number``), or so many at random: trial i is the same however many are drawn."""
    number = number or sweep.run_cap
    drawn: Iterator[dict[str, Any]]
    if sweep.method == "grid":
        choices = {name: _choices(sweep, name, parameter) for name, parameter in sweep.parameters.items()}
        drawn = (dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values()))
        drawn = itertools.islice(drawn, number)
    else:
        drawn = (_draw(sweep, place, seed) for place in range(number or RANDOM_TRIALS))
    return [Trial(place, values) for place, values in enumerate(drawn)]


def _choices(sweep: Sweep, name: str, parameter: Mapping[str, Any]) -> list[Any]:
    if "value" in parameter:
        return [parameter["value"]]
    if "values" in parameter:
        return list(parameter["values"])
    raise InputError(
        f"{sweep.path}: parameter {name}: a grid wants value or values, got {dict(parameter)}. Say method: random."
    )


def _draw(sweep: Sweep, place: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng((seed, place))
    return {name: _one(sweep, name, parameter, rng) for name, parameter in sweep.parameters.items()}


def _one(sweep: Sweep, name: str, parameter: Mapping[str, Any], rng: np.random.Generator) -> Any:
    uniform = float(rng.random())  # drawn for each, so that one more parameter at the end changes no other
    if "value" in parameter or "values" in parameter:
        choices = _choices(sweep, name, parameter)
        return choices[min(int(uniform * len(choices)), len(choices) - 1)]
    low, high = (_number(parameter.get(side)) for side in ("min", "max"))
    if low is None or high is None or low > high:
        raise InputError(
            f"{sweep.path}: parameter {name}: wanted value, values, or min and max, got {dict(parameter)}."
        )
    whole = all(isinstance(parameter[side], int) for side in ("min", "max"))
    kind = parameter.get("distribution", "int_uniform" if whole else "uniform")
    if kind == "int_uniform":
        return int(low) + min(int(uniform * (high - low + 1)), int(high - low))
    if kind == "uniform":
        return low + uniform * (high - low)
    if kind == "log_uniform_values" and low > 0:
        return float(f"{math.exp(math.log(low) + uniform * (math.log(high) - math.log(low))):.6g}")
    raise InputError(
        f"{sweep.path}: parameter {name}: distribution {kind!r} is not drawn here; "
        "choose values, uniform, int_uniform or log_uniform_values."
    )


def _number(value: Any) -> float | None:
    """YAML 1.1 reads 1e-5 as a text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", value) else None
