"""P3: NT-Xent forward and backward, ours beside pytorch-metric-learning's, and the memory of a large batch.

    python -m benchmarks.nt_xent [--quick]

Both sides get the same embeddings, in turns, in one process; times are medians. Memory is the growth of the peak
resident size of a process of its own that already holds the embeddings. Wanted: 100 times as fast at 256 pairs of width
768; 8,192 pairs within 1 GB.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.sides import Line, arguments, in_a_process, report, resident
from contrastive_encoders.losses.contrastive import nt_xent
from contrastive_encoders.losses.metric_learning import metric_loss

WIDTH = 768
TEMPERATURE = 0.05


def embeddings(pairs: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(pairs, WIDTH, generator=generator).requires_grad_() for _ in range(2))
    return left, right


def seconds(loss: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> float:
    left.grad = right.grad = None
    start = time.perf_counter()
    loss(left, right).backward()
    return time.perf_counter() - start


def ours(left: Tensor, right: Tensor) -> Tensor:
    return nt_xent(left, right, temperature=TEMPERATURE).loss


def race(pairs: int, rounds: int) -> tuple[float, float]:
    """Median seconds of ours and theirs; each round runs theirs once and ours five times."""
    theirs = metric_loss("NTXentLoss", temperature=TEMPERATURE)
    left, right = embeddings(pairs)
    torch.testing.assert_close(ours(left, right), theirs(left, right), rtol=1e-4, atol=0)
    own_times, their_times = [], []
    for _ in range(rounds):
        their_times.append(seconds(theirs, left, right))
        own_times += [seconds(ours, left, right) for _ in range(5)]
    return statistics.median(own_times), statistics.median(their_times)


def grow(pairs: int) -> tuple[int, float]:
    """Bytes by which forward and backward raised this process's peak over the embeddings, and their seconds."""
    seconds(ours, *embeddings(8))  # what the first call loads is no property of the batch
    left, right = embeddings(pairs)
    before = resident("VmHWM")
    took = seconds(ours, left, right)
    return resident("VmHWM") - before, took


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--grow", type=int, metavar="PAIRS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        print(*grow(options.grow))
        return
    pairs, rounds, large = (64, 3, 1024) if options.quick else (256, 5, 8192)
    own, their = race(pairs, rounds)
    growth, took = map(float, in_a_process("benchmarks.nt_xent", "--grow", large))
    lines = [
        Line("P3", f"{pairs} pairs", "ms", own * 1e3, their * 1e3, their / own, ">= 100x at 256 pairs"),
        Line("P3", f"{large} pairs, memory over the embeddings", "MiB", growth / 2**20, None, None, "<= 1 GB at 8,192"),
        Line("P3", f"{large} pairs, time", "s", took, None, None, ""),
    ]
    report(f"NT-Xent against pytorch-metric-learning, width {WIDTH}, float32", lines, options.output)


if __name__ == "__main__":
    main()
