"""Reader of sweep files in W&B's format."""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_encoders.core import InputError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

OTHERS_OF_A_COMMAND = ("${env}", "${interpreter}", "${program}", "${args_no_hyphens}", "python", "/usr/bin/env")
METHODS = ("grid", "random", "bayes")
TRIALS = 20  # trials of random and bayes if neither the command line nor run_cap sets the number


class Rungs(NamedTuple):
    """Hyperband as in W&B: after ``first`` scorings, and then eta times as many, one in eta trials continues."""

    first: int
    eta: int
    last: int | None  # number of scorings from which no trial is stopped


class Sweep(NamedTuple):
    path: Path
    method: str
    metric: str
    maximize: bool
    parameters: dict[str, dict[str, Any]]
    words: list[str]  # overrides of the command that are the same in each trial
    rungs: Rungs | None  # early_terminate
    run_cap: int | None

    def distributions(self) -> "dict[str, BaseDistribution]":
        """Return the distribution of each parameter for Optuna."""
        return {name: _distribution(self, name, parameter) for name, parameter in self.parameters.items()}

    def grid(self) -> list[dict[str, Any]]:
        """Return all combinations in the file's order, the last parameter varying fastest.

        The list is empty for methods other than grid.
        """
        if self.method != "grid":
            return []
        choices = [_choices(parameter) for parameter in self.parameters.values()]
        return [dict(zip(self.parameters, values, strict=True)) for values in itertools.product(*choices)]

    def identity(self, words: list[str], seed: int) -> str:
        """Return the identity of the study: the same search with the same overrides has the same identity."""
        asked = [self.method, self.metric, self.maximize, self.parameters, self.words, self.rungs, words, seed]
        return hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()[:16]


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file in W&B's format.

    Raises:
        InputError: the file does not exist, is not YAML, or is not a sweep.
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
    if not isinstance(metric, dict):
        raise InputError(f"{path}: metric {metric!r}: wanted name and goal, as W&B's sweeps have them.")
    goal = metric.get("goal", "maximize")
    if goal not in ("maximize", "minimize"):
        raise InputError(f"{path}: metric.goal {goal!r} is unknown; choose maximize, minimize.")
    command = found.get("command") or []
    if not any("${args_no_hyphens}" in str(word) for word in command):
        raise InputError(f"{path}: wanted a command with ${{args_no_hyphens}}, by which `train` gets its overrides.")
    words = [str(word) for word in command if str(word) not in OTHERS_OF_A_COMMAND]
    for name, parameter in found["parameters"].items():
        if not isinstance(parameter, dict) or not isinstance(parameter.get("values", []), list):
            raise InputError(
                f"{path}: parameter {name}: wanted value, a list of values, or min and max; got {parameter!r}."
            )
    early = found.get("early_terminate") or None
    if not metric.get("name") and (early is not None or method == "bayes"):
        asking = "method bayes" if early is None else "early_terminate"
        raise InputError(f"{path}: {asking} wants metric.name, the score that trials are judged by.")
    cap = found.get("run_cap")
    if cap is not None and (type(cap) is not int or cap < 1):
        raise InputError(f"{path}: run_cap {cap!r}: wanted a whole number, at least 1.")
    return Sweep(
        path,
        method,
        str(metric.get("name") or ""),
        goal == "maximize",
        found["parameters"],
        words,
        None if early is None else rungs_of(early, path),
        cap,
    )


def rungs_of(early_terminate: Any, where: Path) -> Rungs:
    """Read the rungs from ``min_iter`` and ``eta``, or from ``max_iter``, ``s``, and ``eta``. The default of eta is 3.

    Raises:
        InputError: ``early_terminate`` has another type, or its numbers define no rungs.
    """
    if not isinstance(early_terminate, dict) or early_terminate.get("type") != "hyperband":
        raise InputError(f"{where}: early_terminate {early_terminate!r}: wanted type: hyperband with min_iter and eta.")
    eta = early_terminate.get("eta", 3)
    least, most, brackets = (early_terminate.get(key) for key in ("min_iter", "max_iter", "s"))
    if not isinstance(eta, int) or eta < 2:
        raise InputError(f"{where}: early_terminate: eta {eta!r}: wanted a whole number, 2 or more.")
    if isinstance(least, int) and least > 0:
        return Rungs(least, eta, None)
    if isinstance(most, int) and isinstance(brackets, int) and most > 0 and brackets > 0:
        powers = [power for power in range(1, brackets + 1) if most >= eta**power]
        if powers:
            return Rungs(most // eta ** max(powers), eta, most)
    raise InputError(f"{where}: early_terminate wanted min_iter, or max_iter and s, as whole numbers above 0.")


def words_of(values: Mapping[str, Any]) -> list[str]:
    """Return overrides as in ${args_no_hyphens} of a W&B agent: ``KEY=VALUE`` with the value as Python prints it."""
    return [f"{key}={value}" for key, value in values.items()]


def _choices(parameter: Mapping[str, Any]) -> list[Any]:
    """Return the choices of a parameter in a form that Optuna can record.

    Optuna records plain values, so a list is replaced by its text. If two values are equal for Python but have
    different texts, such as 1 and True, all values are replaced by their texts.
    """
    found = [parameter["value"]] if "value" in parameter else list(parameter.get("values", []))
    plain = [one if one is None or isinstance(one, bool | int | float | str) else str(one) for one in found]
    words = [str(one) for one in plain]
    return words if len({*plain}) < len({*words}) else plain


def _distribution(sweep: Sweep, name: str, parameter: Mapping[str, Any]) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    where = f"{sweep.path}: parameter {name}"
    if choices := _choices(parameter):
        return CategoricalDistribution(choices)
    if sweep.method == "grid":
        raise InputError(f"{where}: a grid wants value or values, got {dict(parameter)}. Say method: random.")
    low, high = (_number(parameter.get(side)) for side in ("min", "max"))
    if low is None or high is None or low > high:
        raise InputError(f"{where}: wanted value, values, or min and max, got {dict(parameter)}.")
    whole = all(isinstance(parameter[side], int) for side in ("min", "max"))
    kind = parameter.get("distribution", "int_uniform" if whole else "uniform")
    if kind == "int_uniform":
        return IntDistribution(int(low), int(high))
    if kind == "uniform" or (kind == "log_uniform_values" and low > 0):
        return FloatDistribution(low, high, log=kind != "uniform")
    raise InputError(
        f"{where}: distribution {kind!r} is not drawn here; choose values, uniform, int_uniform or log_uniform_values."
    )


def _number(value: Any) -> float | None:
    """Return a number, or None. Text is converted because YAML 1.1 reads 1e-5 as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", value) else None
