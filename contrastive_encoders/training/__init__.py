"""Training runs, and their Python API: ``run(RunConfig(...))``, or ``train(rows, ...)`` with the keys of the command
line.
"""

from contrastive_encoders.training.api import TrainResult, run, train
from contrastive_encoders.training.compose import compose
from contrastive_encoders.training.run_config import RunConfig

__all__ = ["RunConfig", "TrainResult", "compose", "run", "train"]
