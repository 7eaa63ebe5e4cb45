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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from command.children import start
from command.signals import INTERRUPTED, TERMINATED, exit_on_sigterm
from files.manifest import is_finished
from files.ownership import LOCK

log = logging.getLogger(__name__)

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
WRONG_INPUT = 2
ENDED = (INTERRUPTED, TERMINATED, -signal.SIGINT, -signal.SIGTERM)
LINES_KEPT = 30  # of what a failed run said
ASKED_EVERY = 0.5  # seconds between looks at a trial that may be ended early


class Job(NamedTuple):
    """``words`` are those of the command line, without ``output_dir``; Hydra's own, as ``--config-dir=FOLDER``, too."""

    name: str
    words: list[str]
    folder: Path


class Done(NamedTuple):
    name: str
    status: int  # 0: its results are there
    seconds: float
    attempts: int
    said: str  # the end of what a failed run wrote
    early: str = ""  # why it was ended before its end

    @property
    def finished(self) -> bool:
        return self.status == 0

    @property
    def failed(self) -> bool:
        return self.status not in (0, *ENDED) and not self.early

    def in_words(self) -> str:
        if self.early:
            return f"stopped early ({self.early})"
        if self.status in ENDED:
            return "interrupted"
        return "done" if self.finished else f"failed with status {self.status}"


class Running:
    """The processes that there are. ``end`` ends them all, and then none is started any more."""

    def __init__(self) -> None:
        self.ended_by = 0  # an exit status, once it has ended
        self._lock = threading.Lock()
        self._processes = list[subprocess.Popen[str]]()

    def start(self, job: Job, place: dict[str, str]) -> "subprocess.Popen[str] | None":
        with self._lock:
            if self.ended_by:
                return None
            options = [word for word in job.words if word.startswith("-")]  # Hydra reads no words behind an option
            words = [word for word in job.words if not word.startswith("-")]
            process = start(
                [sys.executable, str(TRAIN), *options, *words, f"output_dir={job.folder}"],
                {**_importing_alike(), **place},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self._processes.append(process)
            return process

    def end(self, status: int) -> None:
        with self._lock:
            self.ended_by = self.ended_by or status
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()  # it saves its state


def _importing_alike() -> dict[str, str]:
    """The environment in which train.py finds a module of the user's that this process would import from its folder.

    ``python -m`` looks into the working folder, ``python train.py`` into its own.
    """
    here = Path.cwd()
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if all(Path(entry).resolve() != here for entry in sys.path):
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*given, str(here)])}


def devices_here(parallel: int) -> list[dict[str, str]]:
    """The environment of each place that a run may take: a GPU each where there are any, in turn."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name for name in given.split(",") if name] if given is not None else [str(one) for one in range(_gpus())]
    return [{"CUDA_VISIBLE_DEVICES": names[place % len(names)]} if names else {} for place in range(parallel)]


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def run_all(
    jobs: Iterable[Job],
    record: Path,
    parallel: int = 1,
    at_end: Callable[[Job, Done], None] | None = None,
    verdict: Callable[[Job], str] | None = None,
) -> list[Done]:
    """In their order, ``parallel`` at a time; what has its ``results.json`` is not begun.

    A job is taken from ``jobs`` when a place is free, so that it may depend on what came of those before. ``record``
    gets a line for each; ``verdict`` is asked while a run runs, and ends it where it gives a reason.

    A run that fails is begun once more (it continues from its checkpoint), unless its input is wrong: the same words
    would fail again. An interruption ends all of it; the same command goes on.
    """
    free = Queue[dict[str, str]]()
    for place in devices_here(parallel):
        free.put(place)
    running, lock = Running(), threading.Lock()

    def one(job: Job) -> Done | None:
        if is_finished(job.folder):
            return Done(job.name, 0, 0.0, 0, "")
        place = free.get()
        try:
            done = _attempts(job, place, running, verdict)
        finally:
            free.put(place)
        if done is None:
            return None
        with lock:
            _add_line(record, {**done._asdict(), "words": job.words, "ended": time.strftime("%Y-%m-%dT%H:%M:%S")})
        if at_end:
            at_end(job, done)
        return done

    found, take = dict[int, Done](), _one_at_a_time(jobs, running)

    def work() -> None:
        try:
            while (taken := take()) is not None:
                if done := one(taken[1]):
                    found[taken[0]] = done
        except BaseException:
            running.end(TERMINATED)
            raise

    with _terminable(), ThreadPoolExecutor(parallel) as pool:
        workers = [pool.submit(work) for _ in range(parallel)]
        try:
            for worker in workers:
                worker.result()
        except (KeyboardInterrupt, SystemExit) as error:
            running.end(TERMINATED if isinstance(error, SystemExit) else INTERRUPTED)
            raise  # the pool waits until all runs have saved their state
    if running.ended_by == TERMINATED:
        raise SystemExit(TERMINATED)
    if running.ended_by:
        raise KeyboardInterrupt
    return [found[place] for place in sorted(found)]


def _add_line(record: Path, values: dict[str, Any]) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def _one_at_a_time(jobs: Iterable[Job], running: Running) -> Callable[[], tuple[int, Job] | None]:
    """For several threads: the next job and its place, None when there is none or all is being ended."""
    waiting, taking = enumerate(jobs), threading.Lock()

    def take() -> tuple[int, Job] | None:
        with taking:
            return None if running.ended_by else next(waiting, None)

    return take


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends all of it as Ctrl-C does, instead of leaving the runs behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = exit_on_sigterm()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _attempts(job: Job, place: dict[str, str], running: Running, verdict: Callable[[Job], str] | None) -> Done | None:
    """None where all is being ended before it was begun."""
    began, attempts = time.monotonic(), 0
    while True:
        _wait_for_another(job, running)
        process = running.start(job, place)
        if process is None and not attempts:
            return None
        if process is not None:
            attempts += 1
            output, early = _followed(process, job, verdict)
            status, said = process.returncode, "\n".join(output.splitlines()[-LINES_KEPT:])
        if early and status != 0:
            return Done(job.name, status, time.monotonic() - began, attempts, "", early)
        if status in ENDED:
            running.end(TERMINATED if status in (TERMINATED, -signal.SIGTERM) else INTERRUPTED)
        if status in (0, WRONG_INPUT, *ENDED) or attempts == 2 or running.ended_by:
            return Done(job.name, status, time.monotonic() - began, attempts, "" if status == 0 else said)
        log.warning(
            "%s failed with status %d; it is begun once more. %s", job.name, status, said.splitlines()[-1:] or ""
        )


def _followed(process: "subprocess.Popen[str]", job: Job, verdict: Callable[[Job], str] | None) -> tuple[str, str]:
    """What it wrote until its end, and why it was ended early."""
    early = ""
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=ASKED_EVERY if verdict and not early else None)
            except subprocess.TimeoutExpired:
                early = verdict(job) if verdict else ""
                if early:
                    process.terminate()
            else:
                return output, early
    finally:
        if process.poll() is None:  # nobody could say a verdict
            process.terminate()
            process.communicate()


def _wait_for_another(job: Job, running: Running) -> None:
    """A run of an earlier command that was killed may still be saving its state."""
    path = job.folder / LOCK
    while path.exists() and not running.ended_by:
        try:
            with FileLock(path).acquire(timeout=1):
                return
        except Timeout:
            log.info("%s: another process is in %s; waiting for its end.", job.name, job.folder)
