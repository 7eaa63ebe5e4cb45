"""Training a small classifier takes many products of some 10 microseconds, which several threads only slow down."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch's threads on the CPU, one inside: threads that wait for each other cost ten times the work when others use
    the cores (63 s in place of 6 for TREC).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
