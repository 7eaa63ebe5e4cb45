"""Training runs: ``from training import train, compose`` does from Python what train.py does."""

import training.settings  # noqa: F401  Hydra is told which classes configs/ names
from training.from_python import Trained, compose, train

__all__ = ["Trained", "compose", "train"]
