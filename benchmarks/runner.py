"""Run benchmarks. Each compares two sides that take turns, and prints a table of medians.

    python -m benchmarks NAME [--quick] [--output FILE] [OPTION ...]
    python -m benchmarks all [--part PART] [--device cuda] [--list] [--quick] [--output FOLDER]

``NAME --help`` lists the options of a benchmark. ``all`` runs the jobs of `JOBS` that are due: those that
FOLDER/figures.json doesn't have of this commit and machine, or that failed. Each result is stored as soon as it is
there, so the same command continues. Exit code 0: nothing is due; 1: a job failed; 2: wrong arguments.

A benchmark is a module with a docstring, ``OPTIONS`` (option -> default; a list allows several values, a tuple for
a choice whose first value is the default), ``QUICK`` (the values that ``--quick`` sets), and ``measure(options,
folder)``, which yields the lines of the table.
"""

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.texts import ROOT
from contrastive_encoders.core.runtime.kernel_files import read_number
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.results import environment
from contrastive_encoders.reports.tables import Table, columns, markdown

PRECISIONS = ["fp32", "bf16"]
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


class Line(NamedTuple):
    """A row of the table: ``ours`` and ``theirs`` are medians in ``unit``; ``target`` is about their ratio."""

    figure: str  # P2, P5 ...
    case: str
    unit: str
    ours: float
    theirs: float | None = None  # None: an absolute figure
    ratio: float | None = None
    target: str = ""  # for example ">= 0.95x"


# ---------------------------------------------------------------------------- measuring


def clock_of(options: argparse.Namespace) -> Callable[[], float]:
    """Return the clock of ``--clock``; on a GPU it waits until the device has finished its work."""
    read = CLOCKS[getattr(options, "clock", "wall")]
    device = getattr(options, "device", "cpu")
    if device == "cpu":
        return read

    def read_after_device() -> float:
        sys.modules["torch"].cuda.synchronize(device)
        return read()

    return read_after_device


def timed(run: Callable[[], object], clock: Callable[[], float]) -> Callable[[], float]:
    """Return a function that runs ``run`` and returns its seconds."""

    def seconds() -> float:
        start = clock()
        run()
        return clock() - start

    return seconds


def alternate(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the results of each side in each round; the sides take turns."""
    results: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            results[name].append(side())
    return results


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the rounds' ratios: a slow moment of the machine that both sides share cancels."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def rates(
    figure: str, case: str, unit: str, amount: float, ours: list[float], theirs: list[float], target: str = ""
) -> Line:
    """Return the line of two sides that did the same amount of work in these seconds of each round."""
    own, other = (amount / statistics.median(seconds) for seconds in (ours, theirs))
    return Line(figure, case, unit, own, other, median_ratio(theirs, ours), target)


def in_new_process(function: Callable[..., Any], *arguments: object) -> Any:
    """Return what ``function`` returns in a process whose memory nothing else has touched."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=silence_libraries) as pool:
        return pool.submit(function, *arguments).result()


def resident(name: str, process: int | str = "self") -> int:
    """Return bytes by a line of /proc/PROCESS/status: VmRSS is the memory now, VmHWM the peak; 0 if it has ended."""
    return 1024 * (read_number(Path(f"/proc/{process}/status"), f"{name}:") or 0)


def memory_line(figure: str, case: str, ours: float, theirs: float, target: str) -> Line:
    return Line(figure, case, "MiB", ours / 2**20, theirs / 2**20, ours / theirs, target)


# ---------------------------------------------------------------------------- one benchmark


def parse(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a benchmark."""
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that it runs")
    parser.add_argument("--output", type=Path, metavar="FILE", help="append the table as one line of JSON")
    for option, default in module.OPTIONS.items():
        parser.add_argument(f"--{option.replace('_', '-')}", **_argument(default))
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(module.QUICK)
    _check_device(parser, getattr(options, "device", "cpu"))
    return options


def _argument(default: Any) -> dict[str, Any]:
    if default is False:
        return {"action": "store_true"}
    if isinstance(default, tuple):
        return {"choices": default, "default": default[0]}
    if isinstance(default, list):
        kind = type(default[0]) if default else str
        return {"nargs": "*", "type": kind, "default": default, "choices": default if kind is str and default else None}
    return {"type": str if default is None else type(default), "default": default}


def _check_device(parser: argparse.ArgumentParser, device: str) -> None:
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        parser.error(f"--device {device}: torch sees no such device. Set --device cpu --quick to try it on the CPU.")


def measure(name: str, options: argparse.Namespace) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        return list(importlib.import_module(f"benchmarks.{name}").measure(options, Path(folder)))


def run_one(name: str, arguments: Sequence[str]) -> int:
    options = parse(name, arguments)
    if getattr(options, "device", "cpu") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # which Lightning or the other side would take
    silence_libraries()
    lines = measure(name, options)
    title = (sys.modules[f"benchmarks.{name}"].__doc__ or "").splitlines()[0]
    print(f"{title}\n{machine()}, {getattr(options, 'device', 'cpu')}, {getattr(options, 'clock', 'wall')} time")
    rows = [("", "case", "ours", "theirs", "unit", "ratio", "target"), *map(_cells, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if options.output is not None:
        with options.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"title": title, "lines": [line._asdict() for line in lines]}) + "\n")
    return 0


def _cells(line: Line) -> tuple[str, ...]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}x"
    theirs = "" if line.theirs is None else f"{line.theirs:.4g}"
    return line.figure, line.case, f"{line.ours:.4g}", theirs, line.unit, ratio, line.target


def machine() -> str:
    about = environment()
    return f"{about['device']}, {os.cpu_count()} cores, torch {about['versions']['torch']}"


def silence_libraries() -> None:
    """Turn off the progress bars and warnings of libraries."""
    import logging

    from transformers.utils import logging as transformers_logging

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    warnings.filterwarnings("ignore")


# ---------------------------------------------------------------------------- all of them


STEP = "gpu_step --documents 64 --token-budgets 131072"
JOBS = {  # part -> benchmarks with their options; those for a GPU are ordered by importance
    "cpu": [
        "start_up",
        "scale",
        "nt_xent",
        "equal_texts",
        "chunk_memory",
        "sts_speed --rounds 2",
        "embedding",
        "embedding_runtimes",
        "embedding_runtimes --threads 1",
        "distillation --rounds 2 --steps 4",
        "triplet_synthesis --rounds 3",
        "self_debiased_generation --inputs 32 --shift 1.4375",
        "self_debiased_generation --smollm2 --inputs 48 --precision bf16",
        "lora_training --rounds 1 --steps 3",
        "pair_training --rounds 3 --steps 10",
        "senteval_classifiers --folds 1 --clock cpu",
    ],
    "smoke": ["gpu_smoke"],
    "step": [
        f"{STEP} --recompute off --steps 4 --profile FOLDER/profile.txt",
        *(
            f"{STEP} --backbone {backbone} --recompute off{keys}"
            for backbone in ("roberta", "smollm2")
            for keys in ("", " --keys model.compile=true", " --keys model.attn_implementation=sdpa")
        ),
        f"{STEP} --recompute on",
        "gpu_step --documents 64 --token-budgets 16384 --recompute off --steps 10",
        "gpu_step --documents 256 --token-budgets 131072 --recompute on --steps 10",
    ],
    "trainer": [f"pair_training --objectives {name} --rounds 2 --steps 60" for name in ("contrastive", "cosine")],
    "synthesis": [
        "self_debiased_generation --smollm2 --precision bf16 --inputs 12",
        "self_debiased_generation --layers 48 --width 1600 --precision bf16 --inputs 12",
    ],
    "embed": [
        "sts_speed --precisions bf16 --rounds 1",
        "sts_speed --precisions fp32 --rounds 1",
        "embedding --models minilm --texts 4000 --rounds 2",
        "embedding --models smollm2 --texts 1600 --rounds 2",
    ],
}


def run_all(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks all", description="Run all benchmarks that are due.")
    parser.add_argument("--part", choices=[*JOBS, "gpu"], default="cpu", help="gpu: all parts but cpu, in their order")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--list", action="store_true", help="print what is due, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all of it runs")
    parser.add_argument("--output", type=Path, default=ROOT / "outputs" / "benchmarks", metavar="FOLDER")
    options = parser.parse_args(arguments)
    _check_device(parser, options.device)
    path = options.output / "figures.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    here = {"commit": environment()["git_commit"] or "unknown", "machine": machine(), "quick": options.quick}
    parts = [part for part in JOBS if part != "cpu"] if options.part == "gpu" else [options.part]
    due = [(part, job) for part in parts for job in JOBS[part] if not is_kept(kept.get(job), here)]
    print(f"{len(due)} are due at {here['commit'][:8]}. {here['machine']}", flush=True)
    failures = 0
    for part, job in due:
        print(f"{part}: {job}", flush=True)
        if options.list:
            continue
        start = time.monotonic()
        result = run_in_process(job, options) if part == "cpu" else run_here(job, options)
        kept[job] = {**result, **here, "seconds": round(time.monotonic() - start, 1)}
        failures += "error" in result
        options.output.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(kept, indent=1))
        atomic_write(options.output / "figures.md", table(kept))
    if failures:
        print(f"{failures} failed; the same command tries them again.", file=sys.stderr)
    return 1 if failures else 0


def is_kept(result: dict[str, Any] | None, here: dict[str, Any]) -> bool:
    return result is not None and "error" not in result and all(result[name] == here[name] for name in here)


def options_of(job: str, options: argparse.Namespace) -> list[str]:
    arguments = shlex.split(job.replace("FOLDER", str(options.output.resolve())))
    return [*arguments, *(["--quick"] if options.quick else [])]


def run_in_process(job: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a job in a process of its own, so that no job changes the time of the next one.

    Return its lines, or ``error``, the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lines.json"
        command = [sys.executable, "-m", "benchmarks", *options_of(job, options), "--output", str(output)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"error": (done.stderr or done.stdout)[-2000:]}
        return {"lines": json.loads(output.read_text(encoding="utf-8"))["lines"]}


def run_here(job: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a job in this process, because starting processes would take much of the time on a GPU."""
    name, *arguments = options_of(job, options)
    silence_libraries()
    try:
        lines = measure(name, parse(name, [*arguments, "--device", options.device]))
        return {"lines": [line._asdict() for line in lines]}
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the next job may work
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[-2000:]}
    finally:
        gc.collect()
        if options.device != "cpu":
            sys.modules["torch"].cuda.empty_cache()


def table(kept: dict[str, Any]) -> str:
    """Return Markdown with a row for each line of each benchmark, its command, machine, and commit."""
    heads = [*columns("figure", "case"), *columns("ours", "theirs", "ratio", number=".4g")]
    heads += columns("unit", "target", "command", "machine, commit")
    rows = list[list[Any]]()
    for arguments, result in kept.items():
        source = [f"python -m benchmarks {arguments}", f"{result['machine']}, {result['commit'][:8]}"]
        if "error" in result:
            rows.append(["", result["error"].strip().splitlines()[-1], None, None, None, "", "", *source])
        for line in (Line(**one) for one in result.get("lines", [])):
            rows.append([line.figure, line.case, line.ours, line.theirs, line.ratio, line.unit, line.target, *source])
    return markdown(Table(heads, rows)) + "\n"


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["all"]:
        return run_all(arguments[1:])
    names = sorted({job.split()[0] for jobs in JOBS.values() for job in jobs})
    if arguments and arguments[0] in names:
        return run_one(arguments[0], arguments[1:])
    print(f"{__doc__}\nBenchmarks: {', '.join(names)}")
    return 0 if arguments[:1] in ([], ["--help"]) else 2
