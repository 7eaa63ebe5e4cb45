"""Seed torch before every batch with a hash of the seed, the step, and the rank, so that dropout is reproducible.

A resumed run draws the same numbers as an uninterrupted run, and no generator state has to be stored. With
another number of processes it draws different numbers, and a log message says so if there is dropout.
"""

import hashlib
import logging
from typing import Any

import pytorch_lightning as pl
import torch

from contrastive_encoders.encoders.attention import has_dropout

PROCESSES = "processes"  # number of processes of the run that wrote a checkpoint

log = logging.getLogger(__name__)


class Reseed(pl.Callback):
    """Callback that seeds torch, on the CPU and on every GPU, before each batch."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._step = -1
        # index of the accumulated batch in a step; checkpoints are saved between steps, so it starts at 0
        self._part = 0

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, _: int) -> None:
        step = trainer.global_step
        self._part = self._part + 1 if step == self._step else 0
        self._step = step
        torch.manual_seed(mixed(self.seed, step, self._part, trainer.global_rank))

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        checkpoint[PROCESSES] = trainer.world_size

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        before = checkpoint[PROCESSES]
        if before != trainer.world_size:
            dropout = ", but the dropout masks differ" if has_dropout(pl_module) else ""
            log.info(
                "This run used %d process%s up to step %d and resumes with %d. The batches are the same%s.",
                *(before, "es" if before > 1 else "", checkpoint["global_step"], trainer.world_size, dropout),
            )


def mixed(*numbers: int) -> int:
    """Return a 63-bit hash of the numbers as a seed, so that similar numbers give unrelated seeds."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
