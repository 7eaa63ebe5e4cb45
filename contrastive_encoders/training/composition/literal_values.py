"""Quoting of strings on the command line, so that paths and column names are taken literally, regardless of their
characters.

Hydra's grammar interprets parentheses, commas, quotes, and equals signs, and does not support letters outside ASCII. A
value that it cannot parse, or would parse as something other than text, is quoted.
"""

import functools
import re
import shlex
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import grammar_parser
from omegaconf.errors import GrammarParseError

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import keys_of, matches_type, type_description
from contrastive_encoders.training.composition.config_keys import COMMAND_GROUPS
from contrastive_encoders.training.composition.config_store import REGISTERED

OVERRIDE = re.compile(r"(\+{0,2}([\w.@][\w.@-]*))=(.*)", re.DOTALL)  # not an option (--config-dir=conf)
PREFIX = re.compile(r"stages\.[^.]+\.")  # for a key of one stage
PART = re.compile(r"data\.parts\.[^.]+\.")
TEXT = re.compile(  # between commas
    r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\([^()]*\)|\[[^\[\]]*\]|\$\{[^{}]*\}|[^,])+"""
)
MULTIRUN = ("-m", "--multirun", "hydra.mode=MULTIRUN")


def literal_overrides(config: str, overrides: Sequence[str], kind: type | None = None) -> list[str]:
    """Return the command line arguments with the values of string keys quoted for Hydra. ``kind`` is the config
    dataclass of the command; those of ``train`` and ``generate`` are registered.

    Raises:
        InputError: Hydra cannot parse a value that is not text; the hint is the same argument with quotes.
    """
    multirun = not set(MULTIRUN).isdisjoint(overrides)
    found = list[str]()
    for override in overrides:
        match = OVERRIDE.fullmatch(override)
        if match is None or match[2] in COMMAND_GROUPS.get(config, ()) or match[2].startswith("hydra."):
            found.append(override)
            continue
        if "${" in match[3] and not _has_closed_references(match[3]):
            expected = 'a value in which each "${" begins a reference such as ${seed}'
            raise InputError(
                key=match[2], value=match[3], expected=expected, hint="If this is a file name, rename the file."
            )
        kinds = types_of(config, match[2], kind)
        literal = literal_override(override, kinds, multirun=multirun)
        if _parse(literal) is None:
            expected = " or ".join(dict.fromkeys(map(type_description, kinds))) or "a value that Hydra can read"
            hint = f"If the value is intended, quote it: {shlex.quote(_quoted(match[1], match[3]))}"
            if any(map(_is_list_of_text, _flatten(kinds))) and not match[3].startswith(("[", "{")):
                hint = f"Set {shlex.quote(f'{match[1]}=[{match[3]}]')}."
            raise InputError(key=match[2], value=match[3], expected=expected, hint=hint)
        found.append(literal)
    return found


def literal_override(override: str, kinds: Sequence[Any] = (), *, multirun: bool = False) -> str:
    """Return ``KEY=VALUE`` with the string, or the strings of a list, quoted if Hydra would not parse them literally.

    ``kinds`` are the types that the key may have. Without any, only what Hydra cannot parse is quoted. The user's own
    quotes and braces are kept, and so is a list of lists.
    """
    match = OVERRIDE.fullmatch(override)
    if match is None:
        return override
    key, value = match[1], match[3]
    parts = list(_flatten(kinds))
    parsed = _parse(override)
    if parsed is not None and (not kinds or _is_read(parsed, kinds, multirun)):
        return override
    takes_text = not kinds or any(part in (str, Path) for part in parts)
    takes_list = not kinds or any(_is_list_of_text(part) for part in parts)
    takes_mapping = not kinds or any((typing.get_origin(part) or part) in (Mapping, dict) for part in parts)
    if takes_list and value.startswith("[") and value.endswith("]"):
        return _with_list(key, value) or override
    if not takes_text or _is_quoted(value) or (takes_mapping and value.startswith("{")):
        return override
    if not kinds and value.startswith(("[", "'", '"')):
        return override
    if multirun and "," in value:
        return f"{key}={','.join(_as_text(element.strip()) for element in _split(value))}"
    return f"{key}={_as_text(value)}"


def _is_read(parsed: Override, kinds: Sequence[Any], multirun: bool) -> bool:
    """Return whether Hydra already parses an override as intended: as a value of one of the types ``kinds``, or as
    several values for a sweep.
    """
    if parsed.is_delete() or (multirun and parsed.is_sweep_override()) or parsed.value() is None:
        return True
    if parsed.is_sweep_override():
        return not any(part in (str, Path) for part in _flatten(kinds))
    value, text = parsed.value(), (parsed.input_line or "").partition("=")[2]
    if isinstance(value, str) and value != text and value == text.strip():
        return not any(part in (str, Path) for part in _flatten(kinds))  # a prompt may end with a space
    takes_text = any(part in (str, Path) or _is_list_of_text(part) for part in _flatten(kinds))
    return not takes_text or any(matches_type(value, kind) for kind in kinds)


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] and value[0] in "'\""


def _with_list(key: str, value: str) -> str | None:
    """Return ``KEY=[TEXT,...]`` with each text quoted if necessary; None if the list contains lists, mappings, or
    unbalanced quotes.
    """
    inside = value[1:-1]
    quoted = f"{key}=[{','.join(_as_text(element.strip()) for element in _split(inside))}]"
    return None if re.search(r"[\[{][^\]}]*,", inside) or _parse(quoted) is None else quoted


def _as_text(text: str) -> str:
    """Return a string such that Hydra parses it literally: unchanged if possible, otherwise quoted."""
    if _is_quoted(text):
        return text
    parsed = _parse(f"x={text}")
    is_text = parsed is not None and not parsed.is_sweep_override() and parsed.value() == text
    return text if is_text else QuotedString(text, Quote.double if '"' not in text else Quote.single).with_quotes()


def _has_closed_references(text: str) -> bool:
    try:
        grammar_parser.parse(text)
    except GrammarParseError:
        return False
    return True


def _split(values: str) -> list[str]:
    """Split a string at commas, except at commas in quotes or in balanced parentheses or brackets."""
    return TEXT.findall(values)


def _quoted(key: str, value: str) -> str:
    """Return the argument with its value quoted; in a mapping or a list, each value is quoted separately."""
    override: str | None = None
    if value.startswith("{") and value.endswith("}"):
        pairs = [piece.partition(":") for piece in _split(value[1:-1])]
        override = f"{key}={{{', '.join(f'{name.strip()}: {_as_text(text.strip())}' for name, _, text in pairs)}}}"
    elif value.startswith("[") and value.endswith("]"):
        override = _with_list(key, value)
    return override if override and _parse(override) else f"{key}={QuotedString(value, Quote.double).with_quotes()}"


@functools.cache
def _parse(override: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(override)
    except HydraException:
        return None


# ---------------------------------------------------------------------------------------------------- types of keys


def types_of(config: str, key: str, kind: type | None) -> list[Any]:
    """Return the types that a key may have; an empty list if the key is unknown."""
    if config == "generate":
        return [type_ for name, cls in REGISTERED.items() if name.startswith("recipe/") for type_ in _walk(cls, key)]
    if config != "train":
        return _walk(kind, key)
    key = PART.sub("data.", PREFIX.sub("", key))
    group, _, rest = key.partition(".")
    if group not in ("data", "model"):
        return _walk(REGISTERED.get("run"), key)
    return [kind for name, cls in REGISTERED.items() if name.startswith(f"{group}/") for kind in _walk(cls, rest)]


def _walk(cls: Any, key: str) -> list[Any]:
    name, _, rest = key.partition(".")
    kinds = _types(cls) if hasattr(cls, "__dataclass_fields__") else {}
    if kinds.get(name, Any) is Any:
        return []
    return _walk(kinds[name], rest) if rest else [kinds[name]]


@functools.cache
def _types(cls: Any) -> dict[str, Any]:
    return {one.name: one.type for one in keys_of(cls)}


def _flatten(kinds: Iterable[Any]) -> Iterator[Any]:
    for kind in kinds:
        if typing.get_origin(kind) in (Union, types.UnionType):
            yield from _flatten(typing.get_args(kind))
        else:
            yield kind


def _is_list_of_text(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return origin in (Sequence, list, tuple) and any(part is str for part in _flatten(typing.get_args(kind)))
