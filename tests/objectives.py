"""Objectives and data modules with the values of their configs, unless a test overrides them."""

from functools import cache
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from contrastive_encoders.core.config_schema import build
from contrastive_encoders.datamodules.data_configs import DATA_CONFIGS
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.training.composition.config_files import CONFIGS, choices
from contrastive_encoders.training.composition.config_store import config_node
from contrastive_encoders.training.run_config import RunConfig

# The keys of a backbone that contrastive_encoders.encoders.loading.tiny writes
SIZES = {"vocab_size": 400, "hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 48, "max_length": 512}


KINDS = {"data": DATA_CONFIGS, "model": MODEL_CONFIGS}


@cache
def _config(group: str, name: str) -> DictConfig:
    """Return the values of ``configs/`` for a choice, over the defaults of its settings and of the plain keys."""
    found = OmegaConf.create(config_node(RunConfig) | {group: config_node(KINDS[group][name])})
    for file in ["prompts/gense", *_files(group, name)]:
        read = OmegaConf.load(CONFIGS / f"{file}.yaml")
        found = OmegaConf.merge(found, {"prompts": read} if file.startswith("prompts") else read)
    return OmegaConf.merge({"prompt_assembly": "pieces"}, found)


def _files(group: str, name: str) -> list[str]:
    """Return the file of a model, after the file of the model that it extends."""
    if group == "data":
        return []
    read = OmegaConf.load(CONFIGS / group / f"{name}.yaml")
    return [*(f"{group}/{other}" for other in read.get("defaults", []) if other in choices(group)), f"{group}/{name}"]


def settings(group: str, name: str, **changed: Any) -> dict[str, Any]:
    """Return the keys of configs/GROUP/NAME.yaml with their values, and the given overrides."""
    node = OmegaConf.to_container(_config(group, name)[group], resolve=True)
    return {key: value for key, value in node.items() if key != "_target_"} | changed


def made(group: str, name: str, **changed: Any) -> Any:
    """Make the object of GROUP=NAME; the parts of a mixture are data modules."""
    kind, keys = KINDS[group][name], settings(group, name, **changed)
    parts = {"parts": keys.pop("parts")} if "parts" in keys else {}
    return get_object(kind.target)(build(kind, keys, f"{group}."), **parts)


def built(name: str, backbone: object, **changed: Any) -> Any:
    """Make the LightningModule of model=NAME on a backbone's folder."""
    return made("model", name, backbone=str(backbone), **changed)
