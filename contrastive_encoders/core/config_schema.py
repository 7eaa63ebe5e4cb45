"""Frozen config dataclasses, whose fields declare the type, default, bounds, and meaning of each key.

A config dataclass is defined next to the code that reads it, in a module that does not import torch. The keys that
Hydra composes, the checks, ``--help``, the reference of all keys, and the Python API are all generated from its fields.
"""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union

from contrastive_encoders.core import InputError
from contrastive_encoders.core.errors import shorten
from contrastive_encoders.core.key_suggestions import check_known_keys

Settings = TypeVar("Settings")

REQUIRED = dataclasses.MISSING  # the default of a key that has none


class _Unset:
    """Class of `UNSET`, the value of a key that was not set. A run resolves it from its other keys, or raises an error
    before it begins.
    """

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        """Keep `UNSET` a single object when it is copied or unpickled, because it is compared with ``is``."""
        return "UNSET"


UNSET: Any = _Unset()
TARGET = "target"  # a field without metadata that names the class the settings are for; it is not a key
NOT_A_KEY = {"is_key": False}  # metadata of a field that is not a key
NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    Mapping: "keys with their values",
    dict: "keys with their values",
}
PLURALS = {int: "integers", float: "numbers", str: "strings"}


class Bounds(NamedTuple):
    """Bounds of the value of a numeric key. The value must also be finite. Null and strings are not compared."""

    ge: float | None = None
    le: float | None = None
    gt: float | None = None
    lt: float | None = None

    def include(self, value: Any) -> bool:
        if self == Bounds() or isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return math.isfinite(value) and not (
            (self.ge is not None and value < self.ge)
            or (self.le is not None and value > self.le)
            or (self.gt is not None and value <= self.gt)
            or (self.lt is not None and value >= self.lt)
        )

    def __str__(self) -> str:
        low = f"{self.ge:g}" if self.ge is not None else f"more than {self.gt:g}" if self.gt is not None else ""
        if self.le is not None:
            join = " to " if self.ge is not None else ", and at most "
            return f"{low}{join}{self.le:g}" if low else f"{self.le:g} or less"
        if self.lt is not None:
            low = low if self.ge is None else f"{low} or more"
            return f"{low}, and less than {self.lt:g}" if low else f"less than {self.lt:g}"
        return f"{low} or more" if self.ge is not None else low


class ConfigField(NamedTuple):
    """One field of a config dataclass."""

    name: str
    type: Any
    default: Any  # REQUIRED: there is no default
    meaning: str
    bounds: Bounds
    inherits_from: tuple[str, ...]  # keys of the run; the first of them that has a value provides the default

    @property
    def choices(self) -> list[str]:
        """Values that the ``Literal`` in the type of the key allows; empty if there is no ``Literal``."""
        several = [self.type, *typing.get_args(self.type)]
        return [str(one) for kind in several if typing.get_origin(kind) is Literal for one in typing.get_args(kind)]

    @property
    def written(self) -> Any:
        """The default as written in a config file: an interpolation if the key inherits from other keys."""
        if self.inherits_from and self.default is REQUIRED:
            return f"${{{self.inherits_from[0]}}}"
        if self.inherits_from:
            otherwise = "null" if self.default is None else self.default
            return f"${{first_of:{','.join([*self.inherits_from, str(otherwise)])}}}"
        if self.default is REQUIRED:
            return "???"
        return list(self.default) if isinstance(self.default, tuple) else self.default


def config_field(
    default: Any = REQUIRED,
    meaning: str = "",
    *,
    inherits_from: str | Sequence[str] = (),
    ge: float | None = None,
    le: float | None = None,
    gt: float | None = None,
    lt: float | None = None,
) -> Any:
    """Return a field of a config dataclass. The choices of a key are the values of a ``Literal`` as its type.

    Args:
        default: value of a key that is not set. Without a default the key is required. `UNSET` means that it is
            required, but may be set after the config is created, for example the data path by the rows passed to
            ``train``.
        meaning: one line for ``--help`` and the config reference.
        inherits_from: keys of the run (``seed``, ``model.append_eos``). If this key is not set, it gets the value of
            the first of them that has one, or else ``default``. It is `UNSET` until the run is resolved (`inherit`).
        ge, le, gt, lt: bounds of a number: greater or equal, less or equal, greater than, less than.
    """
    keys = (inherits_from,) if isinstance(inherits_from, str) else tuple(inherits_from)
    metadata = {
        "meaning": meaning,
        "bounds": Bounds(ge, le, gt, lt),
        "of": keys,
        "default": REQUIRED if default is UNSET else default,
    }
    return dataclasses.field(default=UNSET if keys else default, metadata=metadata)


def group(kind: type, meaning: str) -> Any:
    """Return a field that contains a nested config of the dataclass ``kind``, whose keys are set as ``FIELD.KEY``."""
    return dataclasses.field(default_factory=kind, metadata={"meaning": meaning})


def flat_group(kind: type) -> Any:
    """Return a field that contains a config of the dataclass ``kind``, whose keys are set like the keys of the
    enclosing class, without ``FIELD.``.
    """
    return dataclasses.field(default_factory=kind, metadata={"flat": True, **NOT_A_KEY})


def new_default(kind: type, name: str, default: Any) -> Any:
    """Return a copy of the field ``name`` of the config dataclass ``kind`` with a different default, for use in a
    subclass.
    """
    field = next(one for one in dataclasses.fields(kind) if one.name == name)
    return dataclasses.field(default=default, metadata={**field.metadata, "default": default})


def keys_of(kind: Any) -> list[ConfigField]:
    """Return the keys of a config dataclass: required keys, then optional keys of the class, its base classes, and its
    flat groups.
    """
    found = own_keys(kind)
    for flat_kind in flat_groups(kind).values():
        found += own_keys(flat_kind)
    return sorted(found, key=lambda one: one.written != "???")


def flat_groups(kind: Any) -> dict[str, Any]:
    """Return a mapping from the name of each `flat_group` field to its config dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.metadata.get("flat")}


def own_keys(kind: Any) -> list[ConfigField]:
    """Return the keys of a config dataclass, including inherited keys, but not those of its flat groups."""
    fields = {
        field.name: field
        for field in dataclasses.fields(kind)
        if field.init and (field.name != TARGET or field.metadata) and field.metadata.get("is_key", True)
    }
    hints = typing.get_type_hints(kind)
    names = dict.fromkeys(name for one in kind.__mro__ for name in vars(one).get("__annotations__", {}))
    return [_key(fields[name], hints[name]) for name in names if name in fields]


def _key(field: Any, type_: Any) -> ConfigField:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    metadata = field.metadata
    return ConfigField(
        field.name,
        type_,
        metadata.get("default", default),
        metadata.get("meaning", ""),
        metadata.get("bounds", Bounds()),
        metadata.get("of", ()),
    )


def settings_class(module: Any) -> type:
    """Return the config dataclass from which a module is built: the declared type of its attribute ``settings``.

    Raises:
        InputError: it declares none.
    """
    for one in module.__mro__:
        if kind := inspect.get_annotations(one).get("settings"):
            return typing.cast(type, kind)
    raise InputError(
        location=f"{module.__module__}.{module.__qualname__}",
        expected="a class that declares its config class",
        hint="Add the annotation settings: MyConfig to the class.",
    )


def build(kind: type[Settings], values: Any, prefix: str = "") -> Settings:
    """Build a config dataclass from plain values, and check each value.

    Raises:
        InputError: as for `read` and `check`.
    """
    config = read(kind, values, prefix)
    check(config, prefix)
    return config


def read(kind: type[Settings], given: Any, prefix: str = "", target: str | None = None) -> Settings:
    """Build a config dataclass from plain values, with `UNSET` for keys that have neither a value nor a default. Values
    are not compared with types or bounds; `check` does that.

    A field whose type is a config dataclass is built from the keys below it. ``target`` names the class that the
    settings are for, if it is not the default of ``kind``.

    Raises:
        InputError: a key is unknown, or a mapping was expected.
    """
    if not isinstance(given, Mapping):
        names = ", ".join(one.name for one in keys_of(kind))
        key = prefix.rstrip(".")
        raise InputError(key=key, value=given, expected=f"a mapping with any of the keys {names}")
    keys = keys_of(kind)
    check_known_keys(given, [one.name for one in keys], prefix)
    values: dict[str, Any] = {} if target is None else {TARGET: target}
    for name, flat_kind in flat_groups(kind).items():
        names_of_group = {one.name for one in own_keys(flat_kind)}
        values[name] = read(flat_kind, {key: value for key, value in given.items() if key in names_of_group}, prefix)
    for one in own_keys(kind):
        value = given.get(one.name, UNSET)
        if value is UNSET or _is_placeholder(one, value):
            if one.default is REQUIRED:
                values[one.name] = UNSET
        elif dataclasses.is_dataclass(one.type):
            nested_type: Any = one.type
            values[one.name] = read(nested_type, value, f"{prefix}{one.name}.")
        else:
            values[one.name] = value
    return kind(**values)


def _is_placeholder(one: ConfigField, value: Any) -> bool:
    """Return whether a config value is unresolved: an interpolation or ``???``."""
    return isinstance(value, str) and value == one.written and (bool(one.inherits_from) or one.default is REQUIRED)


def check(settings: Any, prefix: str = "") -> None:
    """Check the value of each key against its type and bounds. Keys that a run resolves later may be `UNSET`.

    Raises:
        InputError: a value has another type, is out of bounds, or is missing although it is required.
    """
    for name in flat_groups(type(settings)):
        check(getattr(settings, name), prefix)
    for one in own_keys(type(settings)):
        value = getattr(settings, one.name)
        if dataclasses.is_dataclass(one.type):
            check(value, f"{prefix}{one.name}.")
            continue
        if value is UNSET:
            if not one.inherits_from:
                key = f"{prefix}{one.name}"
                raise InputError(key=key, value=None, expected=type_description(one.type), hint=f"Set {key}.")
            continue
        check_type(f"{prefix}{one.name}", value, one.type)
        numbers = value if isinstance(value, list | tuple) else [value]
        if not all(map(one.bounds.include, numbers)):
            raise InputError(key=f"{prefix}{one.name}", value=value, expected=str(one.bounds))


def require(config: Any, key: str, expected: str) -> None:
    """Check that a key that the command requires is set.

    Raises:
        InputError: it is null.
    """
    if getattr(config, key) is None:
        raise InputError(key=key, value=None, expected=expected)


def changed_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a config dataclass whose values differ from the defaults of its class. Nested configs are
    returned as mappings.
    """
    found: dict[str, Any] = {}
    for one in keys_of(type(config)):
        value, default = getattr(config, one.name), one.default
        if isinstance(one.type, type) and dataclasses.is_dataclass(one.type) and isinstance(value, one.type):
            value, default = changed_fields(value), {}
        if value is not UNSET and (one.inherits_from or not _is_equal(value, default)):
            found[one.name] = value
    return found


def _is_equal(value: Any, default: Any) -> bool:
    """Return whether a value equals the default. ``True`` and 1 differ; a list equals a tuple with the same items."""
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return list(value) == list(default)
    return isinstance(value, bool) == isinstance(default, bool) and bool(value == default)


def unset_keys(config: Any, place: str) -> dict[str, ConfigField]:
    """Return a mapping from dotted names to the `UNSET` keys of a config and its nested configs."""
    found: dict[str, ConfigField] = {}
    for one in keys_of(type(config)):
        name, value = f"{place}.{one.name}", getattr(config, one.name)
        if value is UNSET:
            found[name] = one
        elif dataclasses.is_dataclass(value):
            found |= unset_keys(value, name)
        elif isinstance(value, Mapping):  # such as the parts of a mixture
            for part, nested in value.items():
                found |= unset_keys(nested, f"{name}.{part}") if dataclasses.is_dataclass(nested) else {}
    return found


def inherit(config: Settings, run: Any, names: Container[str], place: str) -> Settings:
    """Return a copy of a config in which the keys ``names`` (dotted names) inherit their values from keys of ``run``.

    A key whose values in ``run`` are all None is set to its default, or to None if it has no default.
    """
    values: dict[str, Any] = {}
    for one in keys_of(type(config)):
        name, value = f"{place}.{one.name}", getattr(config, one.name)
        if name in names:
            default = None if one.default is REQUIRED else one.default
            found = (select(run, other) for other in one.inherits_from)
            values[one.name] = next((other for other in found if other is not None), default)
        elif dataclasses.is_dataclass(value):
            values[one.name] = inherit(value, run, names, name)
        elif isinstance(value, Mapping):
            values[one.name] = {
                part: inherit(nested, run, names, f"{name}.{part}") if dataclasses.is_dataclass(nested) else nested
                for part, nested in value.items()
            }
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def select(settings: Any, name: str) -> Any:
    """Return the value of a dotted key in settings or nested mappings, or None if the key does not exist."""
    for part in name.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else getattr(settings, part, None)
    return settings


def as_mapping(settings: Any) -> Any:
    """Convert settings to nested mappings and lists, and omit `UNSET` keys. The class that the settings are for is
    stored as ``_target_``.
    """
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        target = {"_target_": values.pop(TARGET)} if TARGET in values else {}
        return target | {name: as_mapping(value) for name, value in values.items() if value is not UNSET}
    if isinstance(settings, Mapping):
        return {str(name): as_mapping(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [as_mapping(value) for value in settings]
    return settings


def plain_value(value: Any) -> Any:
    """Convert a Python value to JSON types: paths to strings, NumPy scalars to numbers, and config objects to mappings
    of the fields that differ from their defaults.
    """
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_value(changed_fields(value))
    if isinstance(value, Mapping):
        return {str(key): plain_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def check_type(name: str, value: Any, type_: Any) -> None:
    """Check that a value has the type ``type_``.

    Raises:
        InputError: the value of the key ``name`` has another type.
    """
    if not matches_type(value, type_):
        is_choice = isinstance(value, str) and _has_choices(type_)
        hint = None if is_choice or value is None else f"The value is {_value_description(value)}."
        if (found := _wrong_element(value, type_)) is not None:
            hint = f"{shorten(found)} is {'not one of them' if _has_choices(type_) else _value_description(found)}."
        raise InputError(key=name, value=value, expected=type_description(type_), hint=hint)


def _wrong_element(value: Any, type_: Any) -> Any:
    """Return the first element of a list that does not have the declared element type, or None if there is none."""
    kinds = [one for one in (type_, *typing.get_args(type_)) if typing.get_origin(one) in (Sequence, list, tuple)]
    if not kinds or not isinstance(value, list | tuple):
        return None
    return next((one for one in value if not any(matches_type([one], kind) for kind in kinds)), None)


def _value_description(value: Any) -> str:
    """Describe a value of the wrong type in words, for an error message."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "a mapping"
    return next((NAMES[kind] for kind in (int, float, str) if isinstance(value, kind)), f"a {type(value).__name__}")


def matches_type(value: Any, type_: Any) -> bool:
    """Return whether a plain value is of the declared type."""
    origin = typing.get_origin(type_)
    if origin in (Union, types.UnionType):
        return any(matches_type(value, one) for one in typing.get_args(type_))
    if origin is Literal:
        return value in typing.get_args(type_)
    parts = [part for part in typing.get_args(type_) if part is not Ellipsis]
    type_ = origin or type_
    if type_ in (None, types.NoneType):
        return value is None
    if type_ is int or type_ is float:
        return isinstance(value, int if type_ is int else int | float) and not isinstance(value, bool)
    if type_ in (str, Path):
        return isinstance(value, str)
    if type_ in (Sequence, list, tuple):
        element = parts[0] if len(parts) == 1 else Any
        return isinstance(value, list | tuple) and all(matches_type(one, element) for one in value)
    return isinstance(value, type_) if type_ in (bool, dict, Mapping) else True


def _has_choices(type_: Any) -> bool:
    """Return whether a declared type is or contains a ``Literal``, that is, a fixed set of strings."""
    return typing.get_origin(type_) is Literal or any(map(_has_choices, typing.get_args(type_)))


def type_description(type_: Any) -> str:
    """Return a description of a type for error messages."""
    origin, parts = typing.get_origin(type_), typing.get_args(type_)
    if origin in (Union, types.UnionType):
        return " or ".join(type_description(one) for one in parts)
    if origin is Literal:
        return ", ".join(map(str, parts))
    if type_ in (None, types.NoneType):
        return "null"
    if origin in (Sequence, list, tuple):
        if typing.get_origin(parts[0]) is Literal:
            return f"a list of values from {type_description(parts[0])}"
        known = [PLURALS[one] for one in (parts[0], *typing.get_args(parts[0])) if one in PLURALS]
        return f"a list of {' or '.join(known)}" if known else "a list"
    return NAMES.get(origin or type_, str(type_))
