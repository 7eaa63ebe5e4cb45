"""Two outputs of one command, compared bit by bit, except for values of time and place."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.integration.curves import without_times

# Owner, place and time of a job; how often something was started
UNLIKE = re.compile(
    r"(^|/)(\.contrastive-encoders\.lock.*|\.hydra/hydra\.yaml|[^/]*\.lock|lock|alive-\d+|previous\.ckpt|curve\.png|[^/]*\.html"
    r"|README\.md|report\.md|(runs|trials)\.jsonl|study\..*|[^/]*\.db[^/]*|\.sentences/.*|comparison\.json|pictures/.*)$"
)
OF_THE_MOMENT = {*"cost spent created seconds wall_seconds git_commit ended device hours written".split()}
LEFT_BEHIND = re.compile(r"\.part$|\.progress$|\.old$")
OF_A_CHECKPOINT = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch")


def differences(ours: Path, whole: Path) -> list[str]:
    """Return the differences as text; empty without differences."""
    here, there = _files(ours), _files(whole)
    found = [f"{name} is {'missing' if name in there else 'too much'}" for name in sorted(here.keys() ^ there.keys())]
    for name in sorted(here.keys() & there.keys()):
        if (where := _differs(here[name], there[name])) is not None:
            found.append(f"{name} differs {where}".strip())
    return found + [f"{name} remained" for name in sorted(_all(ours)) if LEFT_BEHIND.search(name)]


def _all(output: Path) -> dict[str, Path]:
    if output.is_dir():
        return {str(path.relative_to(output)): path for path in output.rglob("*") if path.is_file()}
    return {path.name: path for path in output.parent.glob(f"*{output.name}*") if path.is_file()}


def _files(output: Path) -> dict[str, Path]:
    return {
        name: path for name, path in _all(output).items() if not UNLIKE.search(name) and not LEFT_BEHIND.search(name)
    }


def _differs(ours: Path, whole: Path) -> str | None:
    """Return where two files differ, as far as possible; None if they are equal."""
    if ours.read_bytes() == whole.read_bytes():
        return None
    if ours.name == "metrics.csv":
        return _first(without_times(ours.parent), without_times(whole.parent))
    if ours.suffix == ".json":
        return _first(*(json.loads(path.read_text(encoding="utf-8")) for path in (ours, whole)))
    if ours.suffix == ".npz":
        with np.load(ours) as one, np.load(whole) as other:
            return _first(dict(one), dict(other))
    if ours.suffix == ".ckpt":
        one, other = (torch.load(path, map_location="cpu", weights_only=True) for path in (ours, whole))
        return _first(*({key: found.get(key) for key in OF_A_CHECKPOINT} for found in (one, other)))
    return ""


def _first(one: Any, other: Any, place: str = "") -> str | None:
    """Return the first place where two values differ, except for values that depend on the time."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other} - OF_THE_MOMENT, key=str):
            if key not in one or key not in other:
                return f"at {place}{key}"
            if (found := _first(one[key], other[key], f"{place}{key}.")) is not None:
                return found
        return None
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for at, pair in pairs if (found := _first(*pair, f"{place}{at}.")) is not None), None)
    if isinstance(one, torch.Tensor | np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        return None if np.array_equal(one, other, equal_nan=one.dtype.kind == "f") else f"at {place}"
    return None if one == other or (one != one and other != other) else f"at {place} ({one!r}, {other!r})"[:200]
