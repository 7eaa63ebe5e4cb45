"""Objectives and data modules with the values of their configs, where a test does not say otherwise."""

from functools import cache
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from command.config_files import CONFIGS, choices  # it brings what configs leave to be found out
from command.settings import node
from contracts.settings import build
from datamodules.settings import KINDS
from training.settings import Run

# Of a backbone that encoders.tiny writes
SIZES = {"vocab_size": 400, "hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "max_length": 512}


@cache
def _config(group: str, name: str) -> DictConfig:
    train, own = OmegaConf.create(node(Run)), OmegaConf.load(CONFIGS / f"{group}/{name}.yaml")
    if group == "data":
        own = OmegaConf.create(node(KINDS[name]))
    for other in own.get("defaults", []):
        if other in choices(group):
            own = OmegaConf.merge(OmegaConf.load(CONFIGS / group / f"{other}.yaml"), own)
    keys = OmegaConf.load(CONFIGS / "model_keys/backbone.yaml") if group == "model" else {}
    prompts = {"prompts": OmegaConf.load(CONFIGS / "prompts" / "gense.yaml"), "prompt_assembly": "pieces"}
    return OmegaConf.merge(prompts, train, keys, own if group in own else {group: own})


def settings(group: str, name: str, **changed: Any) -> dict[str, Any]:
    """The keys of configs/GROUP/NAME.yaml with their values, and those changed."""
    node = OmegaConf.to_container(_config(group, name)[group], resolve=True)
    return {key: value for key, value in node.items() if key != "_target_"} | changed


def made(group: str, name: str, **changed: Any) -> Any:
    """What GROUP=NAME makes."""
    if group == "data":
        return made_data(name, settings(group, name, **changed))
    return get_object(_config(group, name)[group]._target_)(**settings(group, name, **changed))


def made_data(name: str, keys: dict[str, Any]) -> Any:
    """The data module of data=NAME; the parts of a mixture are data modules."""
    parts = {"parts": keys.pop("parts")} if "parts" in keys else {}
    return get_object(KINDS[name].target)(build(KINDS[name], keys, "data."), **parts)


def built(name: str, backbone: object, **changed: Any) -> Any:
    """The LightningModule of model=NAME on a backbone's folder."""
    return made("model", name, backbone=str(backbone), **changed)
