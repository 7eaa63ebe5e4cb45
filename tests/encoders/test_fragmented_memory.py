"""`FragmentedMemory`: resident memory before and after a chunk, as the kernel counts it."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from contrastive_encoders.core import Ragged
from contrastive_encoders.core.runtime import malloc
from contrastive_encoders.core.runtime.malloc import FragmentedMemory
from tests.objectives import built

pytestmark = pytest.mark.skipif(not hasattr(malloc._glibc(), "mallinfo2"), reason="needs glibc 2.33 or later")
FREED = 200 * 2**20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fragments():
    """Allocate blocks of 64 KiB on the heap, and free every second one. Return the others."""
    return [torch.ones(2**14) for _ in range(2 * FREED // 2**16)][::2]


def released(heap, max_free, mapped=None):
    """Free `FREED` bytes, read a mapped file, and return how much memory `limit` returns to the system."""
    blocks, pages = fragments(), mapped is not None and mapped[::4096].sum()
    before = resident()
    heap.limit(max_free)
    found = before - resident()
    assert pages is not None
    assert all(block.all() for block in blocks)
    return found


def all_released(folder):
    np.save(folder / "x.npy", np.ones(FREED, np.uint8))
    blocks, heap = fragments(), FragmentedMemory()  # free before the first chunk
    heap.limit()
    found = [released(heap, FREED // 2), released(heap, 2**40)]
    heap.limit(0)
    found += [released(heap, 3 * FREED // 2, np.load(folder / "x.npy", mmap_mode="r"))]
    return found, len(blocks)


def test_free_memory_above_the_limit_is_returned(tmp_path):
    """In the third case, the pages of a file are resident, too, but not free memory of the heap."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found, _ = pool.submit(all_released, tmp_path).result()
    assert found == pytest.approx([FREED, 0, 0], abs=0.1 * FREED)


@pytest.mark.parametrize(("how", "passes"), [("on", 2), ("off", 0)])
def test_the_heap_is_limited_whenever_a_chunk_is_recomputed(how, passes, tiny_bert, monkeypatch):
    """A chunk of two texts is computed in the forward pass, and again in the backward pass."""
    encoder, limited = built("pairs", tiny_bert, token_budget=30, activation_checkpointing=how).encoder, list[int]()
    monkeypatch.setattr(FragmentedMemory, "limit", lambda self: limited.append(1))
    encoder.encode_sequences(Ragged(torch.randint(5, 50, (60,)), np.full(4, 15))).vectors.sum().backward()
    assert len(limited) == passes * 2
