"""Training runs from Python: ``run(Run(...))``, and ``train(rows, ...)`` with the keys of the command line."""

from training.compose import compose
from training.from_python import Trained, run, train
from training.settings import Run

__all__ = ["Run", "Trained", "compose", "run", "train"]
