"""The scores that a run reports: its best checkpoint, over the whole suite, when training is done."""

from collections.abc import Callable
from pathlib import Path

import pytorch_lightning as pl
import torch

from contracts import InputError
from evaluation.callback import ScoreCallback
from evaluation.statistics import Scores


class FinalScores(pl.Callback):
    """Puts the best weights into the module on every rank, then scores them; ``skip()``: the run was cut short.

    The last step is among those to choose from, also where a clock or another callback ended the run. The module leaves
    ``fit`` with the best weights, ready for export.
    """

    def __init__(self, scorer: ScoreCallback, best: Path, skip: Callable[[], bool]) -> None:
        self.scorer, self.best, self.skip = scorer, best, skip
        self.scores = Scores({}, {})
        self.best_step = 0

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.skip():  # whoever continues a run that was cut short goes on from a step like any other
            self.scorer.score_step(trainer, pl_module)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.skip():
            return
        if not self.best.is_file():
            raise InputError(
                f"{self.best} is not there: the checkpoint that this run began from is at its last step, so nothing "
                "was trained. Give more max_steps or max_epochs, or begin anew from its weights: backbone=RUN_FOLDER."
            )
        checkpoint = torch.load(self.best, map_location="cpu", weights_only=True, mmap=True)
        pl_module.load_state_dict(checkpoint["state_dict"])
        self.best_step = int(checkpoint["global_step"])
        if len(self.scorer.suite):
            pl_module.to(trainer.strategy.root_device)  # Lightning has moved it to the CPU by now
            self.scores = self.scorer.score(pl_module)
