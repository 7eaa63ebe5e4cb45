"""Construction of the model, the data module, and the trainer of a resolved run."""

from dataclasses import replace
from typing import Any

import hydra
from hydra.utils import get_class

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.process_group import find_ranks
from contrastive_encoders.training.resolve import ResolvedRun


def data_modules(data: Any) -> dict[str, Any]:
    """Return a mapping of dotted keys to data modules: ``data``, or ``data.parts.NAME`` for each data source of a
    mixture.
    """
    return {f"data.parts.{name}": part for name, part in getattr(data, "parts", {}).items()} or {"data": data}


def make_data(run: ResolvedRun, **changed: Any) -> Any:
    """Create the data module of a run.

    Args:
        changed: values that replace those of the data config.

    Raises:
        InputError: the data cannot be read. For a mixture, the error names the data source.
    """
    data_class: Any = get_class(run.data.target)
    config = replace(run.data, **changed)
    if not hasattr(config, "parts"):
        data = data_class(config)
    else:
        parts = {}
        for name, part in config.parts.items():
            part_class: Any = get_class(part.target)
            try:
                parts[name] = part_class(part)
            except InputError as error:
                place = f"data.parts.{name}"
                raise error.with_prefix(f"{place} (its keys are {place}.KEY)") from error
        data = data_class(config, parts)
    _inherit_prompts(run, data)
    return data


def _inherit_prompts(run: ResolvedRun, data: Any) -> None:
    """Use the backbone's prompts for the data if an encoder is trained and ``data.prompts`` is not set."""
    from contrastive_encoders.encoders.loading.own_encoder import (
        prompts_to_inherit,  # imports torch, which is not needed for --help
    )
    from contrastive_encoders.encoders.objective import Objective

    parts = [part for part in data_modules(data).values() if getattr(part, "inherits_prompts", False)]
    trains_encoder = run.model is None or issubclass(get_class(run.model.target), Objective)
    if parts and trains_encoder and run.backbone not in (None, "tiny"):
        prompts = prompts_to_inherit(str(run.backbone))
        for part in parts:
            part.backbone_prompts = prompts


def make_model(run: ResolvedRun) -> Any:
    """Create the LightningModule of a run.

    Raises:
        InputError: the backbone cannot be loaded.
    """
    from contrastive_encoders.encoders.loading.meta_weights import (
        absent_weights,  # imports torch, which is not needed for --help
    )

    module: Any = get_class(run.model.target)
    with absent_weights(run.is_sharded and find_ranks().rank > 0):
        return module(run.model)


def make_trainer(run: ResolvedRun, **arguments: Any) -> Any:
    """Create Lightning's trainer from the run's keys and additional arguments."""
    return hydra.utils.instantiate(run.trainer_arguments, **arguments)
