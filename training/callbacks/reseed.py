"""Dropout that a continued run repeats: torch is seeded from (seed, step, rank) before every batch.

A resumed run then draws what the uninterrupted run drew, and no generator state has to be stored.
"""

import hashlib
from typing import Any

import pytorch_lightning as pl
import torch


class Reseed(pl.Callback):
    """Seeds torch, on the CPU and on every GPU, before each batch."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._step = -1
        self._part = 0  # which of the accumulated batches of a step; checkpoints lie between steps, so it starts at 0

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, _: int) -> None:
        step = trainer.global_step
        self._part = self._part + 1 if step == self._step else 0
        self._step = step
        torch.manual_seed(mixed(self.seed, step, self._part, trainer.global_rank))


def mixed(*numbers: int) -> int:
    """A seed of 63 bits in which neighbouring inputs have nothing in common."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
