"""Checks of config values, and lists of the config keys of each command."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import build, keys_of, matches_type
from contrastive_encoders.training.composition.config_files import CONFIGS, MEANINGS, choices
from contrastive_encoders.training.composition.config_store import choices_with_key, keys_below

COMMAND_GROUPS = {
    "train": ("model", "data", "trainer", "logger", "experiment"),
    "generate": ("recipe",),
    "compare": ("race",),
}
Config = TypeVar("Config")
MAX_INTEGER, MAX_SEED = 10**18 - 1, 2**32 - 1


def check_numbers(cfg: DictConfig) -> None:
    """Check that every number in a config is finite and has at most 18 digits, and that seeds are in the range that all
    libraries accept.

    Raises:
        InputError: a number is invalid.
    """
    for key, value in leaves(OmegaConf.to_container(cfg, resolve=False)):
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if not math.isfinite(value):
            raise InputError(key=key, value=value, expected="a finite number")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise InputError(key=key, value=value, expected="a number of at most 18 digits")
        if key.rpartition(".")[2] == "seed" and not 0 <= value <= MAX_SEED:
            raise InputError(key=key, value=value, expected=f"0 to {MAX_SEED}")


def leaves(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for each value in nested mappings and lists."""
    if isinstance(node, dict | list):
        for name, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def config_from_arguments(kind: type[Config], arguments: Sequence[str]) -> tuple[Config, list[str]]:
    """Parse the arguments ``KEY=VALUE`` whose key belongs to the config dataclass ``kind``, without Hydra; return the
    config and the remaining arguments.

    Raises:
        InputError: a value has another type or is out of bounds.
    """
    types = {one.name: one.type for one in keys_of(kind)}
    values, others = dict[str, Any](), list[str]()
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if equals and key in types:
            values[key] = _value_of(text, types[key])
        else:
            others.append(argument)
    return build(kind, values), others


def _value_of(text: str, type_: Any) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str) and not text.startswith(("'", '"')):
        value = text  # YAML would parse " #1" as a comment
    return value if matches_type(value, type_) or not matches_type(text, type_) else text


def known_keys(config: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield all dotted keys of a command's config, including those of the config group choices in the arguments."""
    GlobalHydra.instance().clear()
    groups = COMMAND_GROUPS.get(config, ())
    chosen = [
        argument for argument in arguments if groups and re.match(rf"\+?({'|'.join(groups)})(@[^=]*)?=", argument)
    ]
    folders = [f"file://{folder}" for folder in config_folders(arguments)]
    searchpath = [f"hydra.searchpath={folders}"] if folders else []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            cfg = compose(config, overrides=[*searchpath, *chosen])
        except (HydraException, TypeError, ValueError):  # the choice itself is invalid
            cfg = compose(config)
    yield from groups if config == "train" else ()
    yield from (key for key in keys_below(cfg) if f".{MEANINGS}." not in key)


def config_folders(arguments: Sequence[str]) -> list[Path]:
    """Return the absolute paths of the config folders that the arguments ``--config-dir=FOLDER`` add."""
    found = re.findall(r"^(?:--config-dir|-cd)[=\n](.*)$", "\n".join(arguments), flags=re.MULTILINE)
    return [Path(one).absolute() for one in found]


def choices_with(key: str, config: str) -> list[str]:
    """Return ``GROUP=CHOICE`` for each choice of a config group that adds ``key`` to the config of a command."""
    if config == "train":
        return choices_with_key(key)
    arguments = [f"{group}={name}" for group in COMMAND_GROUPS.get(config, ()) for name in choices(group)]
    return [argument for argument in arguments if key in known_keys(config, [argument])]
