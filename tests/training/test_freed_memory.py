"""`FreedMemoryReuse`: page faults of a training step that allocates 64 MiB, as the kernel counts them."""

import resource

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from contrastive_encoders.training.callbacks import freed_memory
from contrastive_encoders.training.callbacks.freed_memory import FreedMemoryReuse
from tests.runtime import test_malloc

pytestmark = test_malloc.pytestmark

PAGES = 64 * 2**20 // resource.getpagesize()
STEPS = 40


def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


class Blocks(pl.LightningModule):
    def __init__(self, fails):
        super().__init__()
        self.weight, self.fails, self.faults = nn.Parameter(torch.zeros(1)), fails, []

    def training_step(self, batch, index):
        self.faults.append(page_faults())
        if self.fails and len(self.faults) == STEPS:
            raise ValueError("the last step fails")
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def faults_of_steps(monkeypatch, memory, fails=False):
    """Train with this available memory, which may change at each step; return the page faults of each step."""
    monkeypatch.setattr(freed_memory, "available_memory", iter(memory).__next__)
    module = Blocks(fails)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        callbacks=[FreedMemoryReuse()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    try:
        trainer.fit(module, [torch.zeros(1)] * STEPS)
    except ValueError:
        assert fails
    return module.faults


@pytest.mark.parametrize("fails", [False, True])
def test_blocks_are_reused_during_training_only(monkeypatch, fails):
    faults = faults_of_steps(monkeypatch, [2**60] * STEPS, fails)
    assert faults[0] >= PAGES
    assert faults[-1] < PAGES // 100
    assert page_faults() >= PAGES


def test_blocks_are_not_reused_without_enough_memory(monkeypatch):
    assert faults_of_steps(monkeypatch, [1] * STEPS)[-1] >= PAGES


def test_reuse_ends_if_the_peak_comes_close_to_the_memory(monkeypatch):
    faults = faults_of_steps(monkeypatch, [2**60] * 35 + [1] * (STEPS - 35))
    assert faults[34] < PAGES // 100
    assert faults[-1] >= PAGES
