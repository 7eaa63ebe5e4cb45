"""Training runs from Python: ``run(Run(...))``, and ``train(rows, ...)`` with the keys of the command line."""

from contrastive_encoders.training.api import Trained, run, train
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.run_config import Run

__all__ = ["Run", "Trained", "compose", "run", "train"]
