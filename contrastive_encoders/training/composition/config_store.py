"""Registration of config dataclasses with Hydra, and composition of configs.

A node contains the default of each key. OmegaConf's own types express neither a choice nor a union with a list, so the
node contains plain values. `core.config_schema` compares them with the types and bounds of the fields: `build` for a
command, and `training.checks.check_values` for the model and the data of a run.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import hydra
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

import contrastive_encoders.training.composition.resolvers  # noqa: F401  it registers the resolvers that configs name
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import keys_of
from contrastive_encoders.core.key_suggestions import unknown_key
from contrastive_encoders.core.nested_keys import flatten
from contrastive_encoders.training.composition.config_files import CONFIGS

FOLDER = "settings"  # a defaults list refers to a settings class as /settings/NAME
REGISTERED: dict[str, type] = {}  # NAME -> class
STORE = ConfigStore.instance()


class _SharedNodes(dict[str, Any]):
    """Mapping of all config nodes; copying it returns the same object.

    Hydra copies its entire store for each config and for each group that it lists, and copies a node again when it
    reads it. With these copies, --help takes two seconds longer.
    """

    def __deepcopy__(self, memo: object) -> "_SharedNodes":
        return self


class _ClassNode(ConfigNode):
    """Config node of a config class. The config is created when it is first read: a command reads a few of the nodes,
    and creating all of them takes 0.15 seconds.
    """

    def __init__(self, name: str, kind: type) -> None:
        self.name, self.kind = name, kind
        self.group = self.package = self.provider = None

    @cached_property
    def node(self) -> DictConfig:  # type: ignore[override]  # Hydra replaces it in a copy of this object
        return _config_of(self.kind)


@cache
def _config_of(kind: type) -> DictConfig:
    config = OmegaConf.create(config_node(kind))
    for one in keys_of(kind):
        if one.default == {}:
            OmegaConf.set_struct(config[one.name], False)
    return config


STORE.repo = _SharedNodes(STORE.repo)
# Groups of Hydra's own that are not in the config that it returns; omitting them reduces the time by a third
NOT_COMPOSED = dict.fromkeys(
    f"hydra/{name}" for name in "output launcher sweeper help hydra_help hydra_logging job_logging env".split()
)


def register(kinds: Mapping[str, type]) -> None:
    """Register config dataclasses with Hydra. A defaults list includes the keys of a class as
    ``/settings/NAME@_here_``.

    A key that is an empty mapping accepts any keys below it; its reader checks them.
    """
    REGISTERED.update(kinds)
    for name, kind in kinds.items():
        *groups, last = name.split("/")
        nodes = STORE.repo
        for group in (FOLDER, *groups):
            nodes = nodes.setdefault(group, {})
        nodes[f"{last}.yaml"] = _ClassNode(f"{last}.yaml", kind)


def config_node(kind: Any) -> dict[str, Any]:
    """Return a mapping of the keys of a config dataclass to their defaults, and of ``_target_`` to the class that the
    keys configure.
    """
    target = {"_target_": kind.target} if getattr(kind, "target", "") else {}
    return target | {
        one.name: config_node(one.type) if dataclasses.is_dataclass(one.type) else one.written for one in keys_of(kind)
    }


def compose_config(
    primary: str,
    words: Sequence[str],
    choices: Mapping[str, str] | None = None,
    keys: Mapping[str, Any] | None = None,
) -> DictConfig:
    """Compose ``configs/PRIMARY.yaml`` with command line arguments.

    ``choices`` (group -> choice) and ``keys`` have the precedence of an experiment: they override the file, and the
    arguments override them.
    """
    chosen = [{f"override /{group}": choice} for group, choice in {**NOT_COMPOSED, **(choices or {})}.items()]
    STORE.store("given.yaml", {"defaults": [primary, *chosen, "_self_"], **(keys or {})})
    if GlobalHydra.instance().is_initialized():
        return hydra.compose("given", list(words))
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose("given", list(words))


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Convert dotted keys to nested ones: ``{"model.lr": 1}`` -> ``{"model": {"lr": 1}}``."""
    found = OmegaConf.create()
    for key, value in keys.items():
        OmegaConf.update(found, key, value, merge=True)
    return OmegaConf.to_container(found)  # type: ignore[return-value]


def dotted(keys: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert nested keys to dotted ones. A mapping with ``_target_`` is a value."""
    return flatten(keys, prefix, leaf="_target_")


def assign(cfg: DictConfig, key: str, value: Any, *, in_python: bool = False) -> None:
    """Set the value of a dotted key in a composed config.

    Args:
        in_python: whether error messages write keys as arguments of a function, ``model__lr``.

    Raises:
        InputError: the key does not exist.
    """
    place, _, name = key.rpartition(".")
    parent = OmegaConf.select(cfg, place) if place else cfg
    if parent is None and place.partition(".")[0] not in cfg:
        otherwise = "help(contrastive_encoders.RunConfig) lists the keys."
        raise unknown_key(key, value, keys_below(cfg), otherwise, in_python=in_python)
    if not isinstance(parent, DictConfig):
        raise InputError(key=key, expected=f"an existing key, but {place}={_shown(parent)} has no keys")
    names = [one for one in map(str, parent) if not one.startswith("_")]
    if parent._get_flag("struct") and name not in names:
        otherwise = "help(contrastive_encoders.RunConfig) lists the keys."
        if place:
            prefix = place.replace(".", "__") + "__" if in_python else f"{place}."
            otherwise = f"The keys are {', '.join(f'{prefix}{one}' for one in sorted(names))}."
        raise unknown_key(key, value, keys_below(cfg), otherwise, in_python=in_python, choices_with=choices_with_key)
    OmegaConf.update(cfg, key, value, merge=True, force_add=True)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def choices_with_key(key: str) -> list[str]:
    """Return the choices of ``model`` and ``data`` whose configs contain ``key``, each as ``GROUP=CHOICE``.

    A key of a mixture's data source, ``data.parts.NAME.KEY``, is looked up as ``data.KEY``.
    """
    group, _, name = re.sub(r"^data\.parts\.[^.]+\.", "data.", key).partition(".")
    found = (one.partition("/") for one, kind in REGISTERED.items() if name in dotted(config_node(kind)))
    return [f"{group}={choice}" for kind, _, choice in found if kind == group and group in ("model", "data")]


def keys_below(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield all dotted keys of a config, including keys whose values are mappings."""
    for key in map(str, node) if isinstance(node, DictConfig) and not node._is_none() else ():
        yield f"{prefix}{key}"
        yield from keys_below(node._get_node(key), f"{prefix}{key}.")


def to_container(value: Any) -> Any:
    """Convert a config to plain mappings and lists, with interpolations resolved. Return any other value unchanged."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _first_of(*names: Any, _root_: DictConfig) -> Any:
    """Resolver that returns the value of the first key among its arguments that is not null. If all are null, return
    the last argument. A training run does not call it: `core.config_schema.inherit` has the same effect after the
    composition.
    """
    *keys, otherwise = names
    found = (OmegaConf.select(_root_, name) for name in keys)
    return next((value for value in found if value is not None), otherwise)


OmegaConf.register_new_resolver("first_of", _first_of, replace=True)
