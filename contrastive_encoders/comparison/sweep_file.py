"""Read sweep files in W&B's format."""

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

COMMAND_PLACEHOLDERS = ("${env}", "${interpreter}", "${program}", "${args_no_hyphens}", "python", "/usr/bin/env")
METHODS = ("grid", "random", "bayes")
PARAMETER = "value, a list of values, or min and max"
EXAMPLES = "Examples are in configs/sweeps."
TRIALS = 20  # trials of random and bayes if neither the command line nor run_cap sets the number


class Rungs(NamedTuple):
    """Rungs at which Hyperband stops trials, as in W&B: after ``first`` evaluations, only one in ``eta`` trials
    continues.

    At each further rung, the number of evaluations is ``eta`` times larger.
    """

    first: int
    eta: int
    last: int | None  # number of scorings from which no trial is stopped


class Sweep(NamedTuple):
    path: Path
    method: str
    metric: str
    maximize: bool
    parameters: dict[str, dict[str, Any]]
    overrides: list[str]  # overrides of the command that are the same in each trial
    rungs: Rungs | None  # early_terminate
    run_cap: int | None

    def distributions(self) -> "dict[str, BaseDistribution]":
        """Return the Optuna distribution of each parameter."""
        return {name: _distribution(self, name, parameter) for name, parameter in self.parameters.items()}

    def grid(self) -> list[dict[str, Any]]:
        """Return all combinations of parameter values, in the file's order. The last parameter varies fastest.

        The list is empty for methods other than grid.
        """
        if self.method != "grid":
            return []
        choices = [_choices(parameter) for parameter in self.parameters.values()]
        return [dict(zip(self.parameters, values, strict=True)) for values in itertools.product(*choices)]

    def identity(self, overrides: list[str], seed: int) -> str:
        """Return a hash of the search, the overrides, and the seed. A sweep resumes the trials with its identity."""
        fields = [self.method, self.metric, self.maximize, self.parameters, self.overrides, self.rungs, overrides, seed]
        return hashlib.sha256(json.dumps(fields, default=str).encode()).hexdigest()[:16]


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file in W&B's format.

    Raises:
        InputError: the file does not exist, is not YAML, or is not a valid sweep.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(location=str(path), value=error, expected="a W&B sweep file", hint=EXAMPLES) from error
    if not isinstance(content, dict) or not isinstance(content.get("parameters"), dict) or not content["parameters"]:
        expected = "a W&B sweep file with method, metric, and parameters"
        raise InputError(location=str(path), expected=expected, hint=EXAMPLES)
    method, metric = content.get("method"), content.get("metric") or {}
    if method not in METHODS:
        raise InputError(location=str(path), key="method", value=method, expected=f"one of {', '.join(METHODS)}")
    if not isinstance(metric, dict):
        raise InputError(
            location=str(path), key="metric", value=metric, expected="a mapping with the keys `name` and `goal`"
        )
    goal = metric.get("goal", "maximize")
    if goal not in ("maximize", "minimize"):
        raise InputError(location=str(path), key="metric.goal", value=goal, expected="maximize or minimize")
    command = content.get("command") or []
    if not any("${args_no_hyphens}" in str(override) for override in command):
        expected = "a list with ${args_no_hyphens}, which stands for the overrides of a trial"
        raise InputError(location=str(path), key="command", value=command, expected=expected)
    overrides = [str(override) for override in command if str(override) not in COMMAND_PLACEHOLDERS]
    for name, parameter in content["parameters"].items():
        if not isinstance(parameter, dict) or not isinstance(parameter.get("values", []), list):
            raise InputError(location=str(path), key=f"parameters.{name}", value=parameter, expected=PARAMETER)
    early = content.get("early_terminate") or None
    if not metric.get("name") and (early is not None or method == "bayes"):
        feature = "method: bayes" if early is None else "early_terminate"
        expected = f"the name of the score that {feature} compares"
        raise InputError(location=str(path), key="metric.name", value=None, expected=expected)
    cap = content.get("run_cap")
    if cap is not None and (type(cap) is not int or cap < 1):
        raise InputError(location=str(path), key="run_cap", value=cap, expected="a whole number of 1 or more")
    return Sweep(
        path,
        method,
        str(metric.get("name") or ""),
        goal == "maximize",
        content["parameters"],
        overrides,
        None if early is None else rungs_of(early, path),
        cap,
    )


def rungs_of(early_terminate: Any, path: Path) -> Rungs:
    """Parse the entry ``early_terminate``, which contains either ``min_iter`` and ``eta``, or ``max_iter``, ``s``, and
    ``eta``. ``eta`` defaults to 3.

    Raises:
        InputError: ``early_terminate`` has another type, or its numbers define no rungs.
    """
    if not isinstance(early_terminate, dict) or early_terminate.get("type") != "hyperband":
        expected = "a mapping with type: hyperband, min_iter, and eta"
        raise InputError(location=str(path), key="early_terminate", value=early_terminate, expected=expected)
    eta = early_terminate.get("eta", 3)
    min_iter, max_iter, brackets = (early_terminate.get(key) for key in ("min_iter", "max_iter", "s"))
    if not isinstance(eta, int) or eta < 2:
        expected = "a whole number of 2 or more"
        raise InputError(location=str(path), key="early_terminate.eta", value=eta, expected=expected)
    if isinstance(min_iter, int) and min_iter > 0:
        return Rungs(min_iter, eta, None)
    if isinstance(max_iter, int) and isinstance(brackets, int) and max_iter > 0 and brackets > 0:
        powers = [power for power in range(1, brackets + 1) if max_iter >= eta**power]
        if powers:
            return Rungs(max_iter // eta ** max(powers), eta, max_iter)
    expected = "min_iter, or max_iter and s, as whole numbers greater than 0"
    raise InputError(location=str(path), key="early_terminate", value=early_terminate, expected=expected)


def format_overrides(values: Mapping[str, Any]) -> list[str]:
    """Format values as overrides ``KEY=VALUE``, converted by ``str`` as a W&B agent does for ``${args_no_hyphens}``."""
    return [f"{key}={value}" for key, value in values.items()]


def _choices(parameter: Mapping[str, Any]) -> list[Any]:
    """Return the choices of a parameter as values that Optuna can record.

    Optuna records scalars, so a list is converted to a string. If two values are equal in Python but differ as strings,
    such as 1 and True, all values are converted to strings.
    """
    values = [parameter["value"]] if "value" in parameter else list(parameter.get("values", []))
    plain = [one if one is None or isinstance(one, bool | int | float | str) else str(one) for one in values]
    texts = [str(one) for one in plain]
    return texts if len({*plain}) < len({*texts}) else plain


def _distribution(sweep: Sweep, name: str, parameter: Mapping[str, Any]) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    location, key = str(sweep.path), f"parameters.{name}"
    if choices := _choices(parameter):
        return CategoricalDistribution(choices)
    if sweep.method == "grid":
        raise InputError(
            location=location,
            key=key,
            value=parameter,
            expected="a mapping with the key `value` or `values`, because `method` is grid",
            hint="For a range, use method: random.",
        )
    low, high = (_number(parameter.get(side)) for side in ("min", "max"))
    if low is None or high is None or low > high:
        expected = PARAMETER if low is None or high is None else "min to be at most max"
        raise InputError(location=location, key=key, value=parameter, expected=expected)
    integers = all(isinstance(parameter[side], int) for side in ("min", "max"))
    kind = parameter.get("distribution", "int_uniform" if integers else "uniform")
    if kind == "int_uniform":
        return IntDistribution(int(low), int(high))
    if kind == "uniform" or (kind == "log_uniform_values" and low > 0):
        return FloatDistribution(low, high, log=kind != "uniform")
    expected = "uniform, int_uniform, or log_uniform_values with min greater than 0"
    raise InputError(location=location, key=f"{key}.distribution", value=kind, expected=expected)


def _number(value: Any) -> float | None:
    """Convert a value to a number, or return None if it is not a number. Strings are converted because YAML 1.1 reads
    1e-5 as a string.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", value) else None
