"""P3: NT-Xent forward and backward, compared with pytorch-metric-learning's; and the memory of a large batch.

Both sides get the same embeddings of width 768, in fp32. Memory is the growth of the peak of a process of its own that
already holds the embeddings. Target: 100 times as fast at 256 pairs; 8,192 pairs within 1 GB.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.runner import Line, alternate, clock_of, in_new_process, rates, resident, timed
from contrastive_encoders.losses.contrastive import nt_xent
from contrastive_encoders.losses.metric_learning import metric_loss

OPTIONS = {"pairs": 256, "large": 8192, "rounds": 5, "clock": ("wall", "cpu")}
QUICK = {"pairs": 64, "large": 1024, "rounds": 3}
WIDTH, TEMPERATURE = 768, 0.05


def make_embeddings(pairs: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(pairs, WIDTH, generator=generator).requires_grad_() for _ in range(2))
    return left, right


def our_loss(left: Tensor, right: Tensor) -> Tensor:
    return nt_xent(left, right, temperature=TEMPERATURE).loss


def step_of(loss: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> Callable[[], None]:
    def step() -> None:
        left.grad = right.grad = None
        loss(left, right).backward()

    return step


def peak_growth(pairs: int) -> tuple[int, float]:
    """Return the bytes by which forward and backward raise this process's peak, and their seconds."""
    step_of(our_loss, *make_embeddings(8))()  # loads what any first call loads
    step = step_of(our_loss, *make_embeddings(pairs))
    before = resident("VmHWM")
    seconds = timed(step, time.perf_counter)()
    return resident("VmHWM") - before, seconds


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    their_loss = metric_loss("NTXentLoss", temperature=TEMPERATURE)
    left, right = make_embeddings(options.pairs)
    torch.testing.assert_close(our_loss(left, right), their_loss(left, right), rtol=1e-4, atol=0)
    ours, theirs = (timed(step_of(loss, left, right), clock_of(options)) for loss in (our_loss, their_loss))
    sides = {"ours": lambda: statistics.median(ours() for _ in range(5)), "theirs": theirs}
    times = alternate(sides, options.rounds).values()
    yield rates("P3", f"{options.pairs} pairs", "pairs/s", options.pairs, *times, ">= 100x")
    growth, duration = in_new_process(peak_growth, options.large)
    case = f"{options.large} pairs, {duration:.1f} s, memory over the embeddings"
    yield Line("P3", case, "MiB", growth / 2**20, target="<= 1 GB")
