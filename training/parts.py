"""The model and the data of a run, from their config to modules; the data are one kind, or the parts of a mixture."""

from dataclasses import replace
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig

from command.settings import own_keys
from contracts import InputError
from contracts.settings import build, settings_class

PARTS = "parts"


def data_of(cfg: DictConfig) -> dict[str, Any]:
    """Where the keys stand (``data``, or ``data.parts.NAME`` of each part) -> these keys.

    Raises:
        InputError: a part is nothing that can be built.
    """
    parts = cfg.data.get(PARTS)
    if not isinstance(parts, DictConfig) or not parts:
        return {"data": cfg.data}
    found = {f"data.parts.{name!s}": part for name, part in parts.items()}
    for place, part in found.items():
        if isinstance(part, DictConfig) and PARTS in part:
            raise InputError(f"{place}: a mixture is no part of another. Name its parts beside the others.")
        if not isinstance(part, DictConfig) or "_target_" not in part:
            raise InputError(
                f"{place}: nobody says what it is. Say {place}.data=triplets, or any other; in a YAML file, under "
                f"defaults: /data@{place}: triplets."
            )
    return found


def built(data: Any) -> dict[str, Any]:
    """The same of a data module: it, or those of its parts."""
    return {f"data.parts.{name}": part for name, part in getattr(data, PARTS, {}).items()} or {"data": data}


def settings_of(cfg: DictConfig) -> dict[str, Any]:
    """Where keys of data stand -> the settings that they make; of a mixture its own and those of its parts.

    Raises:
        InputError: a key is unknown, left out, of another type, or out of its bounds.
    """
    return {place: _settings(node, place) for place, node in {"data": cfg.data, **data_of(cfg)}.items()}


def _settings(node: DictConfig, place: str) -> Any:
    return build(settings_class(get_class(node._target_)), own_keys(node), f"{place}.")


def make_data(cfg: DictConfig, **changed: Any) -> Any:
    """The data module that a config asks for; ``changed`` are settings that are to be others.

    Raises:
        InputError: a key is wrong, or what it names cannot be read; of a part of a mixture it is said which.
    """
    settings = settings_of(cfg)
    settings["data"] = replace(settings["data"], **changed)
    whole: Any = get_class(cfg.data._target_)
    if "data" in data_of(cfg):
        return whole(settings["data"], *([{}] if PARTS in cfg.data else []))
    parts = {}
    for place, node in data_of(cfg).items():
        made: Any = get_class(node._target_)
        try:
            parts[place.removeprefix(f"data.{PARTS}.")] = made(settings[place])
        except InputError as error:
            raise InputError(f"{place}, where data.KEY is {place}.KEY: {error}") from error
    return whole(settings["data"], parts)


def model_settings(cfg: DictConfig) -> Any:
    """The settings of the model that a config asks for.

    Raises:
        InputError: a key is unknown, left out, of another type, or out of its bounds.
    """
    return build(settings_class(get_class(cfg.model._target_)), own_keys(cfg.model), "model.")


def make_model(cfg: DictConfig) -> Any:
    """The LightningModule that a config asks for.

    Raises:
        InputError: a key is wrong, or the backbone cannot be loaded.
    """
    module: Any = get_class(cfg.model._target_)
    return module(model_settings(cfg))
