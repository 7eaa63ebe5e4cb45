"""Runs of ``train.py`` as processes of their own: some at a time, one per device, each retried once."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
WRONG_INPUT, INTERRUPTED = 2, (130, 143, -2, -15)
LINES_KEPT = 30  # of what a failed run said


class Job(NamedTuple):
    """``words`` are those of the command line, without ``output_dir``."""

    name: str
    words: list[str]
    folder: Path


class Done(NamedTuple):
    name: str
    status: int  # 0: its results are there
    seconds: float
    attempts: int
    said: str  # the end of what a failed run wrote

    @property
    def finished(self) -> bool:
        return self.status == 0


def devices_here(parallel: int) -> list[dict[str, str]]:
    """The environment of each place that a run may take: a GPU each where there are any, in turn."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name for name in given.split(",") if name] if given is not None else [str(one) for one in range(_gpus())]
    return [{"CUDA_VISIBLE_DEVICES": names[place % len(names)]} if names else {} for place in range(parallel)]


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def run_all(
    jobs: Sequence[Job], record: Path, parallel: int = 1, told: Callable[[Done], None] | None = None
) -> list[Done]:
    """In their order, ``parallel`` at a time; what has its ``results.json`` is not begun.

    ``record`` gets a line for each.

    A run that fails is begun once more (it continues from its checkpoint), unless its input is wrong: the same words
    would fail again. An interruption ends all of it; the same command goes on.
    """
    free = Queue[dict[str, str]]()
    for place in devices_here(parallel):
        free.put(place)
    stop, lock, running = threading.Event(), threading.Lock(), list[subprocess.Popen[str]]()

    def one(job: Job) -> Done | None:
        if stop.is_set():
            return None
        if (job.folder / "results.json").exists():
            return Done(job.name, 0, 0.0, 0, "")
        place = free.get()
        try:
            done = _attempts(job, place, stop, running)
        finally:
            free.put(place)
        with lock:
            record.parent.mkdir(parents=True, exist_ok=True)
            with record.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({**done._asdict(), "words": job.words, "ended": time.strftime("%Y-%m-%dT%H:%M:%S")})
                    + "\n"
                )
        if told:
            told(done)
        return done

    with _terminable(), ThreadPoolExecutor(parallel) as pool:
        waiting = [pool.submit(one, job) for job in jobs]
        try:
            found = [future.result() for future in waiting]
        except KeyboardInterrupt:
            stop.set()
            for process in running:
                process.terminate()  # it saves its state; the pool waits for it
            raise
    if stop.is_set():
        raise KeyboardInterrupt
    return [done for done in found if done is not None]


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends all of it as Ctrl-C does, instead of leaving the runs behind."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _attempts(job: Job, place: dict[str, str], stop: threading.Event, running: list[subprocess.Popen[str]]) -> Done:
    began, attempts = time.monotonic(), 0
    while True:
        attempts += 1
        process = subprocess.Popen(
            [sys.executable, str(TRAIN), *job.words, f"output_dir={job.folder}"],
            env={**os.environ, **place}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        running.append(process)
        output, _ = process.communicate()
        running.remove(process)
        status, said = process.returncode, "\n".join(output.splitlines()[-LINES_KEPT:])
        if status in INTERRUPTED:
            stop.set()
        if status in (0, WRONG_INPUT, *INTERRUPTED) or attempts == 2:
            return Done(job.name, status, time.monotonic() - began, attempts, "" if status == 0 else said)
        log.warning(
            "%s failed with status %d; it is begun once more. %s", job.name, status, said.splitlines()[-1:] or ""
        )
