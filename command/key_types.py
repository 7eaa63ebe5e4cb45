"""Every value of a config is of the type that its reader declares, or one sentence says so."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from omegaconf import DictConfig, ListConfig, OmegaConf

from contracts import InputError


def keys_of(target: Callable[..., Any]) -> dict[str, Any]:
    """The keywords that a target of a config takes, and their types; ``**settings: Unpack[Keys]`` are those of Keys."""
    keys: dict[str, Any] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            [settings] = typing.get_args(parameter.annotation)
            keys |= typing.get_type_hints(settings)
        else:
            keys[name] = parameter.annotation
    return keys


def check_types(node: DictConfig, types_: Mapping[str, Any], prefix: str) -> None:
    for key, wanted in types_.items():
        if key not in node:
            continue
        value = node[key]
        value = OmegaConf.to_container(value, resolve=True) if isinstance(value, DictConfig | ListConfig) else value
        if not _fits(value, wanted):
            raise InputError(f"{prefix}{key}={value!r}: wanted {_described(wanted)}, got {type(value).__name__}.")


def _fits(value: Any, wanted: Any) -> bool:
    origin = typing.get_origin(wanted)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(wanted))
    if origin is Literal:
        return value in typing.get_args(wanted)
    wanted = origin or wanted
    if wanted in (None, types.NoneType):
        return value is None
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted in (str, Path):
        return isinstance(value, str)
    if wanted in (Sequence, list, tuple):
        return isinstance(value, list | tuple)
    if wanted in (bool, dict):
        return isinstance(value, wanted)
    return True


def _described(wanted: Any) -> str:
    if typing.get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_described(one) for one in typing.get_args(wanted))
    if typing.get_origin(wanted) is Literal:
        return ", ".join(map(str, typing.get_args(wanted)))
    if wanted in (None, types.NoneType):
        return "null"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(wanted, "a list" if typing.get_origin(wanted) in (Sequence, list, tuple) else str(wanted))
