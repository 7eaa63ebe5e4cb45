"""Child processes: signal forwarding, exit with the parent.

Lightning's other ranks and those of torchrun are started by others; each of our commands that finds itself to be one
watches its parent, too.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.runtime.process_group import find_ranks, launched
from contrastive_encoders.runtime.signals import TERMINATED, heed_signals

STARTED_BY = "CONTRASTIVE_ENCODERS_STARTED_BY"  # the command, by its process id, that whoever inherits this belongs to
EVERY = 0.5  # seconds between looks at the parent
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
    """Start a command of ours."""
    env = os.environ if environment is None else environment
    return subprocess.Popen(command, env={**env, STARTED_BY: str(os.getpid())}, **how)


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
