"""A command in this process, without exit codes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def run_here(config: str, run: Callable[[Any], Any], arguments: Iterable[object]) -> Any:
    """Return what ``run`` returns for the config of these arguments."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = compose(config, overrides=[str(argument) for argument in arguments])
    return run(cfg)
