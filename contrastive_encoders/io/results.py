"""Read and write ``results.json``: the scores, the cost, and the provenance of a finished run."""

import math
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, cast

import torch

from contrastive_encoders.core import InputError, Results, RunCost, check_version
from contrastive_encoders.core.processor import cpu_field
from contrastive_encoders.core.runtime.kernel_files import read_number
from contrastive_encoders.core.versions import LIBRARIES, PROJECT, version_of
from contrastive_encoders.io.manifest import CorruptFileError, read_record, write_record


class Environment(TypedDict):
    """The entries of ``results.json`` that describe the environment of a run."""

    versions: dict[str, str]
    device: str
    git_commit: str | None


def environment() -> Environment:
    """Return the versions of packages, the name of the device, and the commit of the project if it is a git
    checkout.
    """
    versions = {name: version_of(name) for name in (*LIBRARIES, PROJECT)}
    versions["python"] = platform.python_version()
    return Environment(versions=versions, device=_device_name(), git_commit=_git_commit())


def write_results(path: str | Path, results: Results) -> None:
    """Write a ``results.json`` atomically, with sorted keys.

    Raises:
        ValueError: a number is NaN or infinite, which JSON does not support and no score may be.
    """
    _check_finite(results, "results")
    write_record(Path(path), results, indent=2, sort_keys=True)


def read_results(path: str | Path) -> Results:
    """Read and check a ``results.json``.

    Raises:
        InputError: the file does not exist, is not JSON, is of another version, has missing or unknown entries, or has
            a score that is not a number.
    """
    path = Path(path)
    try:
        found = read_record(path)
    except FileNotFoundError:
        raise InputError(location=str(path), value="no file", expected="the results.json of a finished run") from None
    except (OSError, CorruptFileError) as error:
        raise InputError(
            location=str(path), value=error, expected="the JSON that a run writes", hint="Run the command again."
        ) from error
    _check(path, found)
    return cast(Results, found)


def peak_memory_bytes() -> int:
    """Return the peak memory of this process, in bytes: allocated CUDA memory if CUDA is in use, otherwise resident
    memory.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    return peak_resident_bytes()


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process, in bytes."""
    if (kib := read_number(Path("/proc/self/status"), "VmHWM:")) is not None:
        return 1024 * kib
    # not Linux; on Linux, ru_maxrss of a new process starts with the memory of its parent
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def current_memory_bytes() -> int:
    """Return the memory that this process currently uses, of the same kind as `peak_memory_bytes`, or the peak if the
    system does not report the current memory.
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.memory_allocated()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_memory_bytes()
    return pages * resource.getpagesize()


def _check(path: Path, found: Any) -> None:
    if not isinstance(found, dict):
        raise _invalid(path, None, type(found).__name__, "an object")
    check_version(found.get("version"), "results", location=str(path), hint="Train or evaluate again.")
    _check_keys(path, found, Results.__required_keys__, Results.__optional_keys__)
    if not isinstance(found["cost"], dict):
        raise _invalid(path, "cost", found["cost"], "an object")
    _check_keys(path, found["cost"], RunCost.__required_keys__, RunCost.__optional_keys__)
    for field in ("scores", "scores_before", "baselines"):
        scores = found.get(field, {})
        if not isinstance(scores, dict):
            raise _invalid(path, field, scores, "an object")
        for name, score in scores.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise _invalid(path, f"{field}[{name!r}]", score, "a number")


def _invalid(path: Path, key: str | None, value: Any, expected: str) -> InputError:
    return InputError(key=key, value=value, expected=expected, location=str(path), hint="Run the command again.")


def _check_keys(path: Path, found: Mapping[str, Any], required: frozenset[str], optional: frozenset[str]) -> None:
    missing, unknown = sorted(required - found.keys()), sorted(found.keys() - required - optional)
    if missing or unknown:
        raise _invalid(
            path, None, f"missing entries {missing} and unknown entries {unknown}", "the entries that a run writes"
        )


def _check_finite(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, but a result must be a finite number.")
    if isinstance(value, Mapping):
        for name, entry in value.items():
            _check_finite(entry, f"{where}[{name!r}]")
    elif isinstance(value, list | tuple):
        for place, entry in enumerate(value):
            _check_finite(entry, f"{where}[{place}]")


def _device_name() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return cpu_field("model name") or platform.processor() or platform.machine()


def _git_commit() -> str | None:
    root = Path(__file__).resolve().parents[2]
    # otherwise git would report an unrelated repository that contains the installation
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
