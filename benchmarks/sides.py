"""Two ways to do one job, in turns, and the table and JSON line that say how they compare.

What other work does to the machine hits both sides of a round alike; the medians over rounds are compared. The CPU
clock counts this process only, for a machine that is busy with something else.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.texts import ROOT

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def clock_on(device: str, name: str = "wall") -> Callable[[], float]:
    """The clock, which is read when a GPU has done all that it was given."""
    if not device.startswith("cuda"):
        return CLOCKS[name]

    def after_the_device() -> float:
        sys.modules["torch"].cuda.synchronize(device)
        return CLOCKS[name]()

    return after_the_device


def resident(name: str) -> int:
    """Bytes of this process by a line of Linux' status: VmRSS now, VmHWM at most; ru_maxrss has the parent's, too."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


class Line(NamedTuple):
    """A row of the table: ``ours`` and ``theirs`` are medians in ``unit``, ``target`` is about their ratio."""

    figure: str  # P2, P5 ...
    case: str
    unit: str
    ours: float
    theirs: float | None  # None: an absolute figure
    ratio: float | None
    target: str  # e.g. ">= 0.95x"


def arguments(
    description: str | None,
    *,
    rounds: int | None = None,
    clock: bool = False,
    precisions: bool = False,
    device: str | None = None,
) -> argparse.ArgumentParser:
    """The options of every benchmark, and those of the others that this benchmark wants; numbers are defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that it runs")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append the table as one line of JSON")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    if clock:
        parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    if precisions:
        parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    if device is not None:
        parser.add_argument("--device", default=device, type=there)
    return parser


def there(device: str) -> str:
    """Return the device; argparse refuses it as an argument where torch does not see it."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"{device}: torch sees no such device here. Take --device cpu.")
    return device


def on_the_cpu() -> None:
    """End the program where there is a GPU, which Lightning or the other side would take."""
    if sys.modules["torch"].cuda.is_available():
        raise SystemExit("This compares on the CPU; hide the GPU with CUDA_VISIBLE_DEVICES=.")


def in_a_process(module: str, *words: object, **environment: str) -> list[str]:
    """The words that a benchmark prints in a process of its own, whose memory nothing else has touched."""
    command, variables = [sys.executable, "-m", module, *map(str, words)], os.environ | environment
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=variables).stdout.split()


def alternate(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the results of each side in each round; the sides take turns."""
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            measured[name].append(side())
    return measured


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the rounds' ratios: a slow moment of the machine that both sides share cancels."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def rates(figure: str, case: str, unit: str, amount: float, seconds: Sequence[Sequence[float]], target: str) -> Line:
    """The row of two sides, ours first, that did the same amount of work in so many seconds in each round."""
    ours, theirs = seconds
    own, other = (amount / statistics.median(side) for side in seconds)
    return Line(figure, case, unit, own, other, median_ratio(theirs, ours), target)


def report(title: str, lines: Sequence[Line], output: Path | None) -> None:
    """Print the table; append it to ``output`` where one is given."""
    header = ("", "case", "ours", "theirs", "unit", "ratio", "target")
    rows = [header, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    machine = _machine()
    print(f"{title} ({machine})")
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if output is not None:
        record = {"title": title, "machine": machine, "lines": [line._asdict() for line in lines]}
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _machine() -> str:
    """Describe the machine; torch only where this process has used it."""
    torch = sys.modules.get("torch")
    cores = f"{os.cpu_count()} cores"
    return f"{cores}, torch {torch.__version__}, {torch.get_num_threads()} threads" if torch else cores


def _cells(line: Line) -> tuple[str, ...]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}x"
    theirs = "" if line.theirs is None else f"{line.theirs:.4g}"
    return line.figure, line.case, f"{line.ours:.4g}", theirs, line.unit, ratio, line.target
