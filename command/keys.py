"""Keys of a config: each value is of the type that its reader declares, and a mistyped name meets the nearest one."""

import dataclasses
import difflib
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from command.config_files import CONFIGS, choices
from contracts import InputError

GROUPS = {
    "train": ("model", "data", "trainer", "logger", "experiment"),
    "synthesis": ("recipe",),
    "comparison": ("race",),
}
Kind = TypeVar("Kind")
LARGEST, LARGEST_SEED = 10**18 - 1, 2**32 - 1
MOST_SHOWN = 200  # characters of a value
NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    Mapping: "keys with their values",
}
SEVERAL = {int: "whole numbers", float: "numbers", str: "texts"}


def declared(reader: type | Callable[..., Any]) -> dict[str, Any]:
    """Key -> type: the fields of a TypedDict or NamedTuple, or what a target of a config takes.

    Its ``**settings: Unpack[Keys]`` stand for the fields of Keys.
    """
    if _has_keys(reader):
        return typing.get_type_hints(reader)
    keys: dict[str, Any] = {}
    for name, parameter in inspect.signature(reader).parameters.items():
        if typing.get_origin(parameter.annotation) is typing.Unpack:
            keys |= declared(*typing.get_args(parameter.annotation))
        else:
            keys[name] = parameter.annotation
    return keys


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
        value = resolved(value)
        if not _fits(value, type_):
            raise InputError(
                f"{prefix}{key}={cut(repr(value))}: wanted {_described(type_)}, got {type(value).__name__}."
            )


def resolved(value: Any) -> Any:
    """A config as plain mappings and lists, with what they take from other keys; any other value as it is."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


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


def cut(value: Any) -> str:
    """A value as it is shown in a message: not all of a megabyte."""
    text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"


def _fits(value: Any, wanted: Any) -> bool:
    origin = typing.get_origin(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(wanted))
    if origin is Literal:
        return value in typing.get_args(wanted)
    parts = [part for part in typing.get_args(wanted) if part is not Ellipsis]
    wanted = origin or wanted
    if wanted in (None, types.NoneType):
        return value is None
    if wanted in (int, float):
        return isinstance(value, int if wanted is int else int | float) and not isinstance(value, bool)
    if wanted in (str, Path):
        return isinstance(value, str)
    if wanted in (Sequence, list, tuple):
        alike = parts[0] if len(parts) == 1 else Any
        return isinstance(value, list | tuple) and all(_fits(one, alike) for one in value)
    return isinstance(value, wanted) if wanted in (bool, dict, Mapping) else True


def _described(wanted: Any) -> str:
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (Union, types.UnionType):
        return " or ".join(_described(one) for one in parts)
    if origin is Literal:
        return ", ".join(map(str, parts))
    if wanted in (None, types.NoneType):
        return "null"
    if origin in (Sequence, list, tuple):
        known = [SEVERAL[one] for one in (parts[0], *typing.get_args(parts[0])) if one in SEVERAL]
        return f"a list of {' or '.join(known)}" if known else "a list"
    return NAMES.get(origin or wanted, str(wanted))


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that looks most like it, if any does."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


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


def of_defaults(kind: type[Kind], config: str, **given: Any) -> Kind:
    """What the keys of ``configs/CONFIG.yaml`` that are called like its fields make, but for those that are given."""
    defaults: Any = OmegaConf.load(CONFIGS / f"{config}.yaml")
    return kind(**{name: defaults[name] for name in _fields(kind)} | given)


def refuse_unknown(given: Iterable[str], known: Iterable[str], prefix: str = "") -> None:
    """Raise InputError for the first key that does not exist, as +KEY=... brings one."""
    known = sorted(known)
    for key in given:
        if key not in known:
            near = nearest(key, known)
            every = f"There are {', '.join(known)}." if prefix else "--help lists them."
            raise InputError(
                f"{prefix}{key}: there is no such key. {f'The nearest is {prefix}{near}.' if near else every}"
            )


def known_keys(config: str, words: Sequence[str] | None = None) -> Iterator[str]:
    """All keys of the config that the group choices among the words (of the command line) lead to, dotted."""
    GlobalHydra.instance().clear()
    groups = GROUPS.get(config, ())
    words = sys.argv[1:] if words is None else words
    chosen = [word for word in words if groups and re.match(rf"\+?({'|'.join(groups)})(@[^=]*)?=", word)]
    folders = [f"file://{folder}" for folder in config_folders(words)]
    searched = [f"hydra.searchpath={folders}"] if folders else []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            composed = compose(config, overrides=[*searched, *chosen])
        except (HydraException, TypeError, ValueError):  # what was chosen is what is wrong
            composed = compose(config)
    yield from groups if config == "train" else ()
    yield from _dotted(composed, "")


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


def _dotted(node: Any, prefix: str) -> Iterator[str]:
    if isinstance(node, DictConfig):
        for key in map(str, node):
            yield f"{prefix}{key}"
            yield from _dotted(node._get_node(key), f"{prefix}{key}.")
