"""`FragmentedMemory`: resident memory before and after a chunk, as the kernel counts it."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from contrastive_encoders.core import Ragged
from contrastive_encoders.runtime.malloc import allocated_memory, return_free_memory
from contrastive_encoders.training.callbacks import fragmented_memory
from contrastive_encoders.training.callbacks.fragmented_memory import FragmentedMemory
from tests.objectives import built

pytestmark = pytest.mark.skipif(allocated_memory() is None, reason="needs glibc 2.33 or later")
FREED = 200 * 2**20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def released(backbone, training, limit):
    """Free every second one of many blocks on the heap; return how much memory the next chunk returns to the system."""
    return_free_memory()
    fragmented_memory.MAX_FREE = limit
    model, callback = built("pairs", backbone), FragmentedMemory()
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    batch = Ragged(torch.randint(5, 50, (60,)), np.full(4, 15))
    model.train(training).encoder.encode_sequences(batch)
    callback.on_train_start(trainer, model)
    blocks = [torch.ones(2**14) for _ in range(2 * FREED // 2**16)]  # 64 KiB, below the size of separate mappings
    blocks = blocks[::2]
    before = resident()
    model.encoder.encode_sequences(batch)
    after = resident()
    callback.teardown()
    assert all(block.all() for block in blocks)
    return before - after


CASES = [(True, FREED // 2), (True, 2**40), (False, 0)]


def all_released(backbone):
    return [released(backbone, *case) for case in CASES]


def test_free_memory_above_the_limit_is_returned_before_a_chunk_of_training(tiny_bert):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(all_released, tiny_bert).result()
    assert found == pytest.approx([FREED, 0, 0], abs=0.1 * FREED)
