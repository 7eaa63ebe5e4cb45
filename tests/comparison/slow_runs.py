"""A program that replaces train.py, takes a while, and saves its state; and sweeps of it whose processes are killed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from contrastive_encoders.cli.sweep import read_arguments
from contrastive_encoders.comparison.study import Trials

# Counts to ten. A signal ends it after the step and saves the count. It locks its folder while it runs. A learning rate
# of 666 kills the worker.
PROGRAM = """
import json, os, pathlib, signal, sys, time
from contrastive_encoders.core.runtime.child_processes import init_process
from contrastive_encoders.io.output_directory import lock_folder
init_process()
keys = dict(override.split("=", 1) for override in sys.argv[1:])
folder = pathlib.Path(keys["output_dir"])
lock_folder("output_dir", folder)
received = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: received.append(number))
if keys["model.lr"] == "666": os.kill(os.getppid(), signal.SIGKILL)
(folder / "worker").write_text(str(os.getppid()))
log = folder / "steps"
for step in range(len(log.read_text()) if log.exists() else 0, 10):
    with log.open("a") as file: file.write(str(step))
    time.sleep(0.1)
    if received: sys.exit(128 + received[0])
(folder / "results.json").write_text(json.dumps(dict(scores={"score": float(keys["model.lr"])})))
"""


def write_sweep(folder: Path, values: list[int] | None = None) -> list[str]:
    """Write a sweep of four random trials, two in parallel, or of a grid; return its arguments."""
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    content = {
        "method": "grid" if values else "random",
        "metric": {"name": "score", "goal": "maximize"},
        "command": ["${args_no_hyphens}"],
        "parameters": {"model.lr": {"values": values} if values else {"min": 0.0, "max": 1.0}},
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return [str(folder / "sweep.yaml"), "trials=4", "parallel=2", f"output={folder / 'out'}"]


def recorded(arguments: list[str]) -> tuple[tuple[float, str] | None, list[tuple[int, str, float]]]:
    """Return the best trial, and number, state and score of each trial."""
    asked = read_arguments(arguments)
    trials = Trials(asked.sweep, asked.output, asked.overrides, asked.config.trials, asked.config.seed)
    return trials.best(), [(one.number, one.state.name, one.value) for one in trials.study.get_trials()]


def steps(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text(encoding="utf-8") for path in folder.glob("runs/*/steps")}


def when_under_way(folder: Path, runs: int, act: Callable[[list[int]], None]) -> threading.Thread:
    """Wait in a thread until this many runs have started to count, then call ``act`` with the workers' process ids."""

    def wait() -> None:
        end = time.monotonic() + 60
        while len(found := list(folder.glob("runs/*/steps"))) < runs:
            assert time.monotonic() < end
            time.sleep(0.01)
        act([int(path.with_name("worker").read_text(encoding="utf-8")) for path in found])

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def kill_first(workers: list[int]) -> None:
    os.kill(workers[0], signal.SIGKILL)
