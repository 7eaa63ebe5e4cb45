"""Checks of the classes that ``_target_`` keys name: their package (this project, Lightning, or an allowed package) and
their base class.

A name is resolved first, and the module and the base classes of the object are checked. Other classes require
``allow_targets=[PREFIX]``.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import Strategy

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import check_type
from contrastive_encoders.core.import_target import found_at, imported, is_allowed, untrusted
from contrastive_encoders.training.resolve import ResolvedRun

PROJECT_PACKAGES = ("contrastive_encoders",)
LIGHTNING = ("pytorch_lightning", "lightning", "lightning_fabric")
EXPECTED_CLASSES = {  # place in the config -> expected base class
    "model": pl.LightningModule,
    "data": pl.LightningDataModule,
    "data.parts.*": pl.LightningDataModule,
    "callbacks.*": pl.Callback,
    "logger": Logger,
    "trainer": pl.Trainer,
    "trainer.strategy": Strategy,
}
REQUIRED_ATTRIBUTES = {  # for a user-defined class: the suggested base class, and the attributes that it must have
    "model": ("contrastive_encoders.encoders.objective.Objective", ("objective", "consumes", "tiny_backbone")),
    "data": ("contrastive_encoders.datamodules.text_datamodule.StoredData", ("yields",)),
    "data.parts.*": ("contrastive_encoders.datamodules.text_datamodule.StoredData", ("yields",)),
}
MAKERS = ("contrastive_encoders.training.wandb_session.wandb_logger",)  # functions of this project that create one


def check_targets(run: ResolvedRun) -> None:
    """Check that the class in each ``_target_`` key of a run exists and is allowed.

    Raises:
        InputError: a class is not allowed, or does not exist.
    """
    check_type("allow_targets", run.allow_targets, Sequence[str])
    plain: Any = run.keys()
    allowed = run.allow_targets
    if not isinstance(plain.get("callbacks"), dict):
        raise InputError(
            key="callbacks",
            value=plain.get("callbacks"),
            expected="a mapping from the name of each callback to a mapping of its keys, such as "
            "{stop: {_target_: CLASS}}",
        )
    for name, entry in plain["callbacks"].items():
        if not isinstance(entry, dict) or "_target_" not in entry:
            raise InputError(
                key=f"callbacks.{name}",
                value=entry,
                expected="a mapping of the callback's keys, including _target_, the import path of its class",
            )
    for place, target in _targets({name: value for name, value in plain.items() if name != "stages"}, ()):
        check_target(".".join(place), target, allowed)


def _targets(node: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict):
        if "_target_" in node:
            yield place, node["_target_"]
        for key, value in node.items():
            yield from _targets(value, (*place, str(key)))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _targets(value, (*place, str(number)))


def check_target(key: str, target: Any, allowed: Sequence[str]) -> None:
    """Check that the class at ``target`` belongs to this project, Lightning, or an allowed package, and has the base
    class that ``key`` requires.

    Raises:
        InputError: the class belongs to another package, does not exist, or has the wrong base class.
    """
    kind = EXPECTED_CLASSES.get(key, EXPECTED_CLASSES.get(f"{key.rpartition('.')[0]}.*"))
    if isinstance(target, str) and is_allowed(target, allowed):
        found = imported(f"{key}._target_", target)
        base, required = REQUIRED_ATTRIBUTES.get(key, REQUIRED_ATTRIBUTES.get(f"{key.rpartition('.')[0]}.*", ("", ())))
        if missing := [name for name in required if not hasattr(found, name)]:
            raise InputError(
                key=f"{key}._target_",
                value=target,
                expected=f"a class with the attribute {missing[0]}",
                hint=f"Make the class a subclass of {base}.",
            )
        if not required and kind is not None and inspect.isclass(found) and not issubclass(found, kind):
            raise InputError(key=f"{key}._target_", value=target, expected=f"a subclass of Lightning's {kind.__name__}")
        return
    if not isinstance(target, str) or target.split(".")[0] not in (*PROJECT_PACKAGES, *LIGHTNING):
        raise untrusted(f"{key}._target_", target)
    if target in MAKERS and key == "logger":
        return
    found = found_at(target)
    if found is None:
        raise InputError(key=f"{key}._target_", value=target, expected="the import path of an existing class")
    if not inspect.isclass(found) or found.__module__.split(".")[0] not in (*PROJECT_PACKAGES, *LIGHTNING):
        raise untrusted(f"{key}._target_", target)  # an object that a module of this project has imported
    if kind is not None and not issubclass(found, kind):
        raise InputError(key=f"{key}._target_", value=target, expected=f"a subclass of {kind.__name__}")
