"""`FreedMemoryReuse`: page faults of a training step that allocates 64 MiB, as the kernel counts them."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from contrastive_encoders.training.callbacks import freed_memory
from contrastive_encoders.training.callbacks.freed_memory import FreedMemoryReuse
from tests.runtime import test_malloc
from tests.runtime.test_malloc import PAGES, page_faults

pytestmark = test_malloc.pytestmark
STEPS = 40


class Blocks(pl.LightningModule):
    def __init__(self, callback, fails):
        super().__init__()
        self.weight, self.callback, self.fails = nn.Parameter(torch.zeros(1)), callback, fails
        self.faults, self.states = [], []

    def training_step(self, batch, index):
        self.faults.append(page_faults())
        self.states.append(self.callback.is_enabled)
        if self.fails and len(self.faults) == STEPS:
            raise ValueError("the last step fails")
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(memory, fails=False):
    """Train in this process, with the available memory of each step; return the page faults of each step, whether
    memory was reused in it, and whether it is reused after training.
    """
    freed_memory.available_memory = iter(memory).__next__
    module = Blocks(callback := FreedMemoryReuse(), fails)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    try:
        trainer.fit(module, [torch.zeros(1)] * STEPS)
    except ValueError:
        assert fails
    return module.faults, module.states, callback.is_enabled


@pytest.fixture(scope="module")
def processes():
    """Multiprocessing context whose processes are forks of one that has imported this module, and trained nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@pytest.fixture
def train_in_new_process(processes):
    with ProcessPoolExecutor(1, mp_context=processes) as pool:
        yield lambda *arguments: pool.submit(train, *arguments).result()


@pytest.mark.parametrize("fails", [False, True])
def test_blocks_are_reused_during_training_only(fails, train_in_new_process):
    faults, states, after = train_in_new_process([2**60] * STEPS, fails)
    assert faults[0] >= PAGES
    assert min(faults) < PAGES // 100
    assert states == [False] + [True] * (STEPS - 1)
    assert not after


def test_blocks_are_not_reused_without_enough_memory(train_in_new_process):
    faults, states, _ = train_in_new_process([1] * STEPS)
    assert min(faults) >= PAGES
    assert not any(states)


def test_reuse_ends_if_little_memory_is_available(train_in_new_process):
    _, states, _ = train_in_new_process([2**60] * 35 + [1] + [2**60] * (STEPS - 36))
    assert states == [False] + [True] * 35 + [False] * (STEPS - 36)
