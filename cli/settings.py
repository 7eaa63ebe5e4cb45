"""Classes of settings as configs that Hydra composes, and values of them from what it has composed.

A node holds the default of each key. OmegaConf's own types express neither a choice nor a union with a list, so it
holds plain values, and `contracts.settings.build` compares all of them with the types and bounds of the fields.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from contracts.settings import keys_of

FOLDER = "settings"  # a defaults list names a class of settings as /settings/NAME
REGISTERED: dict[str, type] = {}  # NAME -> class
STORE: Any = ConfigStore.instance()
# Hydra copies the whole store once for each group and file that it lists, although it copies each node again when it
# reads it: --help took two seconds longer.
STORE.__deepcopy__ = lambda memo: STORE


def register(name: str, kind: type) -> None:
    """From now on a defaults list may name the keys of this class: ``/settings/NAME@_here_``."""
    REGISTERED[name] = kind
    group, _, last = name.rpartition("/")
    STORE.store(f"{last}.yaml", node(kind), group=f"{FOLDER}/{group}".rstrip("/"))


def node(kind: Any) -> dict[str, Any]:
    """The keys of a class of settings with their defaults, as a config has them; and the module that they make."""
    target = {"_target_": kind.target} if hasattr(kind, "target") else {}
    return target | {
        one.name: node(one.type) if dataclasses.is_dataclass(one.type) else one.written for one in keys_of(kind)
    }


def resolved(value: Any) -> Any:
    """A config as plain mappings and lists, with what they take from other keys; any other value as it is."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def own_keys(composed: Any) -> dict[str, Any]:
    """The keys of a group of a composed config with their values, but for Hydra's own."""
    plain: Mapping[Any, Any] = resolved(composed)
    return {str(name): value for name, value in plain.items() if not str(name).startswith("_")}
