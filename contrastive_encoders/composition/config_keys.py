"""Checks of config keys: types, ranges, and the nearest name for an unknown key."""

import dataclasses
import math
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.composition.config_files import CONFIGS, choices
from contrastive_encoders.composition.config_store import keys_below, resolved
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import check_type, cut, refuse_unknown

GROUPS = {
    "train": ("model", "data", "trainer", "logger", "experiment"),
    "generate": ("recipe",),
    "compare": ("race",),
}
Kind = TypeVar("Kind")
LARGEST, LARGEST_SEED = 10**18 - 1, 2**32 - 1


def declared(keys: type) -> dict[str, Any]:
    """Key -> type: the fields of a TypedDict or NamedTuple."""
    return typing.get_type_hints(keys)


def _has_keys(type_: Any) -> bool:
    return typing.is_typeddict(type_) or hasattr(type_, "_fields")


def check_types(node: Mapping[Any, Any], wanted: Mapping[str, Any], prefix: str = "") -> None:
    """Compare every value with its type; a type that has keys of its own stands for the keys below.

    Raises:
        InputError: a value is of another type, or a key below is unknown or left out.
    """
    for key, type_ in wanted.items():
        if key not in node:
            continue
        value = node[key]
        if _has_keys(type_):
            below = declared(type_)
            if not isinstance(value, DictConfig) or below.keys() - set(map(str, value)):
                raise InputError(f"{prefix}{key}={value}: wanted {', '.join(below)}, each with a value.")
            refuse_unknown(map(str, value), below, f"{prefix}{key}.")
            check_types(value, below, f"{prefix}{key}.")
            continue
        check_type(f"{prefix}{key}", resolved(value), type_)


def check_numbers(cfg: DictConfig) -> None:
    """No number in a config is NaN, infinite or longer than any reader takes, and seeds are those of every library.

    Raises:
        InputError: one is.
    """
    for key, value in _numbers(OmegaConf.to_container(cfg, resolve=False), ""):
        if not math.isfinite(value):
            raise InputError(f"{key}={value}: wanted a finite number.")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise InputError(f"{key}={cut(value)}: wanted a number of at most 18 digits.")
        if key.rpartition(".")[2] == "seed" and not 0 <= value <= LARGEST_SEED:
            raise InputError(f"{key}={value}: wanted 0 to {LARGEST_SEED}.")


def _numbers(node: Any, key: str) -> Iterator[tuple[str, float]]:
    """Of all values below; what is taken from another key is looked at there."""
    if isinstance(node, int | float) and not isinstance(node, bool):
        yield key, node
    elif isinstance(node, dict | list):
        for name, value in node.items() if isinstance(node, dict) else enumerate(node):
            if key or name != "hydra":
                yield from _numbers(value, f"{key}.{name}" if key else str(name))


def settings(kind: type[Kind], given: Any, prefix: str = "", besides: Iterable[str] = ()) -> Kind:
    """A dataclass or named tuple from the keys that are called like its fields.

    A field that is a dataclass itself is a group of keys; where no key is called like it, its keys are among the
    others. Whatever has a ``check`` is checked.

    Raises:
        InputError: a key is unknown, but for those ``besides``, or a value is of another type.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{prefix.rstrip('.')}={given}: wanted {', '.join(names_of(kind, {}))}, each with a value.")
    refuse_unknown(map(str, given), [*names_of(kind, given), *besides], prefix)
    return _settings(kind, given, prefix)


def names_of(kind: type, given: Mapping[Any, Any]) -> list[str]:
    """The keys that make one."""
    names: list[str] = []
    for name, hint in _fields(kind).items():
        among_the_others = dataclasses.is_dataclass(hint) and name not in given
        names += _fields(hint) if among_the_others else [name]
    return names


def _fields(kind: Any) -> dict[str, Any]:
    """What has no default: that is a key, the rest is the program's own."""
    hints = typing.get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        return hints
    wanted = [one.name for one in dataclasses.fields(kind) if one.init and one.default is dataclasses.MISSING]
    return {name: hints[name] for name in wanted}


def _settings(kind: type[Kind], given: Mapping[Any, Any], prefix: str) -> Kind:
    hints, values = _fields(kind), {}
    check_types(given, {name: hint for name, hint in hints.items() if not dataclasses.is_dataclass(hint)}, prefix)
    for name, hint in hints.items():
        if dataclasses.is_dataclass(hint):
            group: Any = hint
            values[name] = (
                settings(group, given[name], f"{prefix}{name}.") if name in given else _settings(group, given, prefix)
            )
            continue
        values[name] = resolved(given[name])
    made = kind(**values)
    if callable(check := getattr(made, "check", None)):
        check()
    return made


def known_keys(config: str, words: Sequence[str]) -> Iterator[str]:
    """All keys of the config that the group choices among the words lead to, dotted."""
    GlobalHydra.instance().clear()
    groups = GROUPS.get(config, ())
    chosen = [word for word in words if groups and re.match(rf"\+?({'|'.join(groups)})(@[^=]*)?=", word)]
    folders = [f"file://{folder}" for folder in config_folders(words)]
    searched = [f"hydra.searchpath={folders}"] if folders else []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            composed = compose(config, overrides=[*searched, *chosen])
        except (HydraException, TypeError, ValueError):  # what was chosen is what is wrong
            composed = compose(config)
    yield from groups if config == "train" else ()
    yield from keys_below(composed)


def config_folders(words: Sequence[str]) -> list[Path]:
    """The folders of configs that a command line adds: ``--config-dir=FOLDER``, absolute."""
    found = re.findall(r"^(?:--config-dir|-cd)[=\n](.*)$", "\n".join(words), flags=re.MULTILINE)
    return [Path(one).absolute() for one in found]


def choices_with(key: str, config: str) -> list[str]:
    """GROUP=CHOICE for each choice that brings this key, where a config has one group of them: of another recipe."""
    groups = GROUPS.get(config, ())
    if len(groups) != 1:
        return []
    words = [f"{groups[0]}={name}" for name in choices(groups[0])]
    return [word for word in words if key in known_keys(config, [word])]


def word_of(key: str, value: str) -> str:
    """The word of a command line that sets ``key`` to a text, in quotes where Hydra would read more in it."""
    plain = re.fullmatch(r"[\w./ -]+", value, re.ASCII)
    return f"{key}={value if plain else QuotedString(value, Quote.single).with_quotes()}"
