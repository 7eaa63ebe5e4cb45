"""The identity of a run: a hash of all settings that affect its result, in eight hex digits. It is part of the run's
folder name and record. Keys that are derived from the machine, such as ``precision=${fast_precision:}``, count with
their values.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrastive_encoders.core.key_effects import effect_of
from contrastive_encoders.io.output_directory import read_marker

OFF = {"model.lora": "rank", "domain": "path"}  # groups that have no effect if this key is null


def identity_of(keys: Mapping[str, Any]) -> str:
    """Return the identity of a run: eight hex digits of a hash of the settings that affect its result.

    The module of a class of this package does not count, and neither does a key whose value is null.

    Args:
        keys: all keys of the run, as `ResolvedRun.keys` returns them.
    """
    return hashlib.sha256(json.dumps(deciding_keys(keys), sort_keys=True, default=str).encode()).hexdigest()[:8]


def deciding_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested keys of a run that affect its result, except those that are null.

    Args:
        keys: all keys, as `ResolvedRun.keys` returns them.
    """
    kept = _identity_keys(keys)
    for key, switch in OFF.items():
        group, _, name = key.rpartition(".")
        among = kept.get(group) if group else kept
        if isinstance(among, dict) and isinstance(among.get(name), dict) and among[name].get(switch, 0) is None:
            del among[name]
    plain: dict[str, Any] = _keys_and_values(kept)
    return plain


def stage_identity(before: str, name: str, own: str) -> str:
    """Return the identity of the stage ``name``: a hash of its name, the identity of its config (``own``), and the
    identity of the previous stage (``before``).
    """
    return hashlib.sha256(f"{before} {name} {own}".encode()).hexdigest()[:8]


def identity_in(folder: Path) -> str | None:
    """Return the identity (hash of the settings) that is recorded for the run in a folder, or None if the folder
    contains no run.

    Raises:
        InputError: the marker of the folder is damaged, or another version of the project wrote it.
    """
    marker = read_marker(folder, "output_dir")
    return (marker.identity or {}).get("config") if marker else None


def _identity_keys(keys: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the keys that affect the identity according to `core.key_effects`."""
    return {
        name: _identity_keys(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in keys.items()
        if effect_of(f"{prefix}{name}").in_identity
    }


def _keys_and_values(value: Any) -> Any:
    """Return a config without null values. Each ``_target_`` is replaced by its class, which distinguishes classes with
    equal keys: its name if it is of this package, and its full path otherwise.
    """
    if isinstance(value, list):
        return [_keys_and_values(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {str(key): _keys_and_values(one) for key, one in value.items() if one is not None and str(key)[:1] != "_"}
    if "_target_" in value:
        target = str(value["_target_"])
        found["class"] = target.rpartition(".")[2] if target.startswith("contrastive_encoders.") else target
    return found
