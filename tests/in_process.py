"""A command in this process, without exit codes."""

from collections.abc import Callable, Iterable
from typing import Any

from contrastive_encoders.training.composition.config_store import compose_config


def run_here(config: str, run: Callable[[Any], Any], arguments: Iterable[object]) -> Any:
    """Return what ``run`` returns for the config of these arguments."""
    return run(compose_config(config, [str(argument) for argument in arguments]))
