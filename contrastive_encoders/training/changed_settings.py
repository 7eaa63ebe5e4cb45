"""Settings that differ between two runs, and whether a resumed run may change them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from contrastive_encoders.core.errors import shorten
from contrastive_encoders.core.key_effects import KeyEffect, effect_of
from contrastive_encoders.training.identity import deciding_keys

CONFIG_FILE = Path(".hydra", "config.yaml")  # of a run directory: all keys of the run
MAX_CHANGES = 8  # shown in a message
DURATION_KEYS = ("max_steps", "max_epochs")


class SettingChange(NamedTuple):
    """A key with different values in two runs. A value is None if the key was or is not set."""

    key: str
    before: Any
    now: Any

    @property
    def is_fixed(self) -> bool:
        """Whether a resumed run must keep the previous value."""
        return self._effect.on_resume == "fixed"

    @property
    def can_be_resumed(self) -> bool:
        """Whether a run can be resumed with the new value."""
        return self._effect.on_resume == "free"

    @property
    def _effect(self) -> KeyEffect:
        return effect_of(self.key)

    @property
    def shown_before(self) -> str:
        return _shown(self.before)

    @property
    def shown_now(self) -> str:
        return _shown(self.now)

    def __str__(self) -> str:
        return f"{self.key}={self.shown_before}, not {self.shown_now}"


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[SettingChange]:
    """Return the settings that affect the result of a run and differ between two runs. A setting that several keys
    inherit is listed once.

    Args:
        before: all keys of a run, as `ResolvedRun.recorded_keys` returns them.
        now: all keys of the other run.
    """
    old, new = (json.loads(json.dumps(deciding_keys(keys), default=str)) for keys in (before, now))
    found = {one.key: one for one in _changes(old, new, "")}
    return [one for one in found.values() if not _follows(one, found)]


def changes_in(folder: Path, now: Mapping[str, Any]) -> list[SettingChange]:
    """Compare the run in ``folder`` with the run whose keys are ``now``, and return the settings that differ; an empty
    list if the folder contains no readable config.

    Stages are compared with each other. A setting that differs in the same way in all of them is listed once.
    """
    try:
        before: Any = OmegaConf.to_container(OmegaConf.load(folder / CONFIG_FILE))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException):
        return []
    if not isinstance(before, dict):
        return []
    old, new = before.get("stages") or {}, now.get("stages") or {}
    if not old and not new:
        return changes(before, now)
    if [*old] != [*new]:
        return [SettingChange("stages", [*old], [*new])]
    by_stage = {name: changes(old[name], new[name]) for name in new}
    shared = [one for one in next(iter(by_stage.values())) if all(one in found for found in by_stage.values())]
    own = [
        one._replace(key=f"stages.{name}.{one.key}")
        for name, found in by_stage.items()
        for one in found
        if one not in shared
    ]
    return shared + own


def described(found: Iterable[SettingChange]) -> str:
    """Format changes with their previous and current values: ``max_steps=4, not 8; model.lr=3e-05, not 1e-06``."""
    found = list(found)
    shown = "; ".join(map(str, islice(found, MAX_CHANGES)))
    return f"{shown}; and {len(found) - MAX_CHANGES} more" if len(found) > MAX_CHANGES else shown


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[SettingChange]:
    if before.get("class") != now.get("class"):  # their keys differ as well
        yield SettingChange(prefix.rstrip("."), before.get("class"), now.get("class"))
        return
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{prefix}{name}.")
        elif old != new:
            yield SettingChange(f"{prefix}{name}", old, new)


def _follows(one: SettingChange, found: Mapping[str, SettingChange]) -> bool:
    """Return whether a changed key merely inherits its value from a top-level key that has also changed."""
    group, _, name = one.key.rpartition(".")
    if group == "trainer":
        return name in found or (name in DURATION_KEYS and any(key in found for key in DURATION_KEYS))
    plain = found.get(name)
    return bool(group) and plain is not None and (plain.before, plain.now) == (one.before, one.now)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shorten(text) if len(text) > 60 else text
