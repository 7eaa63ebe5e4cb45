"""What happens around a fit. ``from training import train, compose``: the same from Python, without a command line."""

import training.settings  # noqa: F401  Hydra is told which classes configs/ names
from training.from_python import Trained, compose, train

__all__ = ["Trained", "compose", "train"]
