"""Child processes: import path, signal forwarding, exit with the parent.

Lightning's other ranks and those of torchrun are started by others; each of our commands that finds itself to be one
watches its parent, too.
"""

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.config_files import finding_our_modules
from cli.process_group import find_ranks, launched
from cli.signals import TERMINATED, heed_signals
from contracts import InputError

STARTED_BY = "CONTRASTIVE_ENCODERS_STARTED_BY"  # the command, by its process id, that whoever inherits this belongs to
EVERY, LOOK = 0.5, 0.05  # seconds between looks: at the parent, at the children
GRACE = 60.0  # seconds in which a process that was told to end leaves what is whole
TO_LEAVE = 3.0  # seconds that Ctrl-C of a terminal, which all processes get, has before SIGTERM follows
PER_CORE = 4  # processes that share a core, at most

log = logging.getLogger(__name__)


def begin_process() -> None:
    """What every command does first: SIGTERM leaves what is whole and exits with 143, and a process that another
    command of ours or torchrun started ends with that one, whatever ends it."""
    heed_signals()
    starter, parent = os.environ.get(STARTED_BY), os.getppid()
    os.environ[STARTED_BY] = str(os.getpid())
    if starter not in (None, str(parent)) and not Path(f"/proc/{starter}").exists() and Path("/proc/self").exists():
        sys.exit(TERMINATED)  # it ended before this one was here
    if starter == str(parent) or launched():
        end_with(parent)


def end_with(parent: int) -> None:
    """From now on this process, a child of ``parent``, gets SIGTERM when that has ended, and a minute to leave."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(TERMINATED)  # a collective waits for a rank that is gone, say

    threading.Thread(target=watch, daemon=True, name="end with parent").start()


def start(command: Sequence[str], environment: Mapping[str, str] | None = None, **how: Any) -> subprocess.Popen[Any]:
    """Begin one of our commands, which finds our modules whatever lies in its folder."""
    env = finding_our_modules(os.environ if environment is None else environment)
    return subprocess.Popen(command, env={**env, STARTED_BY: str(os.getpid())}, **how)


def run_ranks(module: str, number: int, once: Sequence[str] = ()) -> int:
    """This command, ``python -m MODULE WORDS``, as so many processes that each know their rank, without the keys that
    are for this one alone; the exit status of all, 0 or that of the first that failed, which ends the others."""
    words = words_again(once)
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // number)))
    shared = {**os.environ, "WORLD_SIZE": str(number), "OMP_NUM_THREADS": threads}
    with _hearing() as heard:
        command = [sys.executable, "-m", module, *words]
        ranks = [start(command, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(number)]
        status, failed = _wait_for(ranks, heard)
    if failed is not None and ranks[failed].returncode < 0:
        log.error(
            "process %d of %d was ended by signal %d, and so were the others. What is whole is there; the same command "
            "goes on.",
            failed,
            number,
            -ranks[failed].returncode,
        )
    return status


def words_again(once: Sequence[str] = ("overwrite",)) -> list[str]:
    """The words of this command, less the keys that are said once."""
    return [word for word in sys.argv[1:] if word.lstrip("+").partition("=")[0] not in once]


def works_for_another() -> bool:
    """Whether this is one of several processes for which the first of them, or what started them, holds the output."""
    if launched():
        return find_ranks().rank > 0
    return "LOCAL_RANK" in os.environ and (os.environ["LOCAL_RANK"] != "0" or "RANK" in os.environ)  # Lightning, or we


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_number(key: str, number: int, gpus: int = 0) -> None:
    """So many processes may be started: one for each GPU, where it is those that they are for; else four for each core.

    Raises:
        InputError: they are more.
    """
    most = gpus or PER_CORE * cores()
    if number > most:
        there = f"{gpus} GPUs" if gpus else f"{cores()} cores, and {PER_CORE} processes share one at most"
        raise InputError(f"{key}={number}: this machine has {there}. Wanted {most} processes or fewer.")


def _wait_for(started: Sequence[subprocess.Popen[Any]], heard: list[tuple[int, float]]) -> tuple[int, int | None]:
    """The exit status of all, and whose it is: 0, or that of the first that failed, which ends the others. A signal
    does so too, and is nobody's. Who has not left a minute later is killed."""
    ending_since, failed = math.inf, None
    while running := [process for process in started if process.poll() is None]:
        failed = _first_failed(started) if failed is None else failed
        now = time.monotonic()
        is_signalled = any(_is_heard(number, now - at) for number, at in heard)
        if ending_since == math.inf and (failed is not None or is_signalled):
            ending_since = now
            for process in running:
                process.terminate()
        if now - ending_since > GRACE:
            log.warning("process %s did not end within %.0f s, and is killed", running[0].pid, GRACE)
            running[0].kill()
        time.sleep(LOOK)
    if heard:
        return 128 + heard[0][0], None
    failed = _first_failed(started) if failed is None else failed
    status = 0 if failed is None else started[failed].returncode
    return 128 - status if status < 0 else status, failed  # -9: killed


def _is_heard(number: int, ago: float) -> bool:
    """Whether a signal is passed on now: Ctrl-C of a terminal reaches the children without us."""
    return number != signal.SIGINT or ago > TO_LEAVE


def _first_failed(started: Sequence[subprocess.Popen[Any]]) -> int | None:
    return next((place for place, process in enumerate(started) if process.returncode), None)


@contextlib.contextmanager
def _hearing() -> Iterator[list[tuple[int, float]]]:
    """SIGTERM and SIGINT as they come, with the time, instead of what they do otherwise."""
    heard: list[tuple[int, float]] = []
    numbers = [number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) != signal.SIG_IGN]
    before = {
        number: signal.signal(number, lambda number, _: heard.append((number, time.monotonic()))) for number in numbers
    }
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
