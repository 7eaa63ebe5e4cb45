"""Child processes of a command, which exit with their parent."""

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
from contrastive_encoders.core.runtime.process_group import launcher_info
from contrastive_encoders.core.runtime.signals import TERMINATED, raise_signals

PARENT_PID = "CONTRASTIVE_ENCODERS_PARENT_PID"  # process id of the command that started this one
POLL_INTERVAL_S = 0.5
TERMINATION_GRACE_S = 60.0  # for a process to save finished work and exit
MAX_PROCESSES_PER_CORE = 4


def init_process() -> None:
    """Install signal handlers, and make this process exit when the command or the torchrun that started it exits. Every
    command calls this first.
    """
    raise_signals()
    starter, parent = os.environ.get(PARENT_PID), os.getppid()
    os.environ[PARENT_PID] = str(os.getpid())
    if starter not in (None, str(parent)) and not Path(f"/proc/{starter}").exists() and Path("/proc/self").exists():
        sys.exit(TERMINATED)  # the parent exited before this point
    if starter == str(parent) or launcher_info():
        exit_with_parent(parent)


def exit_with_parent(parent: int) -> None:
    """Start a thread that sends SIGTERM to this process when the process ``parent`` has exited, and kills this process
    a minute later.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_INTERVAL_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(TERMINATION_GRACE_S)
        os._exit(TERMINATED)  # it may be in a collective operation that waits for an exited rank

    threading.Thread(target=watch, daemon=True, name="exit with parent").start()


class ExitWithParentHook:
    """Attribute for objects that are sent to a worker process: a worker that has unpickled such an object exits when
    this process exits.
    """

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __setstate__(self, state: dict[str, int]) -> None:
        exit_with_parent(state["parent"])


def start(
    command: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a command of this project as a child process, which exits when this process exits."""
    env = os.environ if environment is None else environment
    return subprocess.Popen(command, env={**env, PARENT_PID: str(os.getpid())}, **options)


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_number(key: str, number: int, gpus: int = 0) -> None:
    """Check that ``number`` processes may be started: at most one per GPU or, without GPUs, four per CPU core.

    Raises:
        InputError: the number is too large.
    """
    limit = gpus or MAX_PROCESSES_PER_CORE * cores()
    if number > limit:
        reason = f"{gpus} GPUs" if gpus else f"{cores()} cores, with at most {MAX_PROCESSES_PER_CORE} processes each"
        raise InputError(key=key, value=number, expected=f"at most {limit}, since this host has {reason}")
