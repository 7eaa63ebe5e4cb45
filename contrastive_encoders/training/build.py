"""Build the model, the data module and the trainer of a run from its settings."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hydra
from hydra.utils import get_class

from contrastive_encoders.core import InputError, without_secrets
from contrastive_encoders.core.config_schema import UNSET, as_mapping, filled
from contrastive_encoders.runtime.process_group import launched, rank_here
from contrastive_encoders.training.run_config import RunConfig, Trainer

PARTS = "parts"
USUAL = as_mapping(Trainer())
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def data_of(run: RunConfig) -> dict[str, Any]:
    """Where the keys of data stand (``data``, or ``data.parts.NAME`` of each part of a mixture) -> their settings."""
    parts = getattr(run.data, PARTS, None)
    return {f"data.{PARTS}.{name}": part for name, part in parts.items()} if parts else {"data": run.data}


def built(data: Any) -> dict[str, Any]:
    """The same of a data module: it, or those of its parts."""
    return {f"data.{PARTS}.{name}": part for name, part in getattr(data, PARTS, {}).items()} or {"data": data}


def filled_in(run: RunConfig) -> RunConfig:
    """Return the run with each key of its model and data filled in that takes its value from a plain key."""
    data: Any = filled(run.data, run) if run.data is not None else None
    if parts := getattr(data, PARTS, None):
        data = replace(data, parts={name: filled(part, run) for name, part in parts.items()})
    model = filled(run.model, run) if run.model is not None else None
    return replace(run, model=model, data=data, trainer=trainer_keys(run))


def keys_of(run: RunConfig) -> dict[str, Any]:
    """Return all keys of a run with their values."""
    keys: dict[str, Any] = as_mapping(filled_in(run))
    del keys["asked"]
    return keys


def recipe_of(run: RunConfig) -> dict[str, Any]:
    """The same as ``results.json`` and ``.hydra/config.yaml`` have them: without what lets one in at an address."""
    recipe: dict[str, Any] = without_secrets(keys_of(run))
    return recipe


def is_missing(settings: Any) -> bool:
    """Return whether a required key has no value."""
    return any(
        getattr(settings, field.name) is UNSET and not field.metadata.get("of")
        for field in dataclasses.fields(settings)
    )


def make_data(run: RunConfig, **changed: Any) -> Any:
    """The data module that a run asks for; ``changed`` are settings that are to be others.

    Raises:
        InputError: what a key names cannot be read; of a part of a mixture it is said which.
    """
    whole: Any = get_class(run.data.target)
    data = replace(filled_in(run).data, **changed)
    if not hasattr(data, PARTS):
        return _inheriting(run, whole(data))
    parts = {}
    for name, settings in data.parts.items():
        made: Any = get_class(settings.target)
        try:
            parts[name] = made(settings)
        except InputError as error:
            place = f"data.{PARTS}.{name}"
            raise InputError(f"{place}, where data.KEY is {place}.KEY: {error}") from error
    return _inheriting(run, whole(data, parts))


def _inheriting(run: RunConfig, data: Any) -> Any:
    """Give the data the prompts of the backbone, where they have none of their own and an encoder is trained."""
    from contrastive_encoders.encoders.loading.own_encoder import (
        prompts_to_inherit,  # with torch, which --help does without
    )
    from contrastive_encoders.encoders.objective import Objective

    parts = [part for part in built(data).values() if getattr(part, "inherits_prompts", False)]
    trains_encoder = run.model is None or issubclass(get_class(run.model.target), Objective)
    if parts and trains_encoder and run.backbone not in (None, "tiny"):
        prompts = prompts_to_inherit(str(run.backbone))
        for part in parts:
            part.backbone_prompts = prompts
    return data


def make_model(run: RunConfig) -> Any:
    """The LightningModule that a run asks for.

    Raises:
        InputError: the backbone cannot be loaded.
    """
    from contrastive_encoders.encoders.loading.meta_weights import (
        absent_weights,  # it imports torch, which --help does without
    )

    module: Any = get_class(run.model.target)
    with absent_weights(is_sharded_run(run) and rank_here() > 0):
        return module(filled(run.model, run))


def is_sharded_run(run: RunConfig) -> bool:
    """Whether the trainer is to shard the weights."""
    strategy = trainer_keys(run)["strategy"]
    return isinstance(strategy, Mapping) and str(strategy.get("_target_", "")).endswith(".ShardedStrategy")


def make_trainer(run: RunConfig, **given: Any) -> Any:
    """Lightning's trainer."""
    return hydra.utils.instantiate(trainer_keys(run), **given)


def device_to_load(run: RunConfig) -> str | None:
    """Return the device for another encoder that a run loads, such as a teacher: "cpu" if the run trains there.
    Otherwise return None, which means a GPU if there is one.
    """
    return "cpu" if trainer_keys(run)["accelerator"] == "cpu" else None


def trainer_keys(run: RunConfig) -> Mapping[str, Any]:
    """Return the arguments of Lightning's trainer. A plain key of the run replaces a key of the trainer that is null.

    torchrun and srun have already decided how many processes there are, and Lightning must be told the same.
    """
    one_epoch = -1 if run.max_steps > 0 else 1  # with the number of steps alone as many epochs as they take
    of_the_run = {
        "devices": run.devices,
        "num_nodes": run.num_nodes,
        "precision": PRECISIONS[run.precision],
        "max_steps": run.max_steps,
        "max_epochs": one_epoch if run.max_epochs is None else run.max_epochs,
        "max_time": run.max_time,
        "log_every_n_steps": run.log_every_n_steps,
        "default_root_dir": run.output_dir,
    }
    keys = {name: of_the_run.get(name) if value is None else value for name, value in {**USUAL, **run.trainer}.items()}
    if found := launched():
        keys["devices"], keys["num_nodes"] = found.per_node, found.processes // found.per_node
        if keys["strategy"] == "auto":
            keys["strategy"] = "ddp"
    return keys
