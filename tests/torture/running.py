"""A job as one process or several: started, signaled, and waited for; and its remaining processes."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.forks import ROOT, Started
from tests.torture.jobs import Job

LONGEST = 240.0  # seconds; beyond that it hangs
MARK = "CONTRASTIVE_ENCODERS_TORTURE"  # in the environment of all processes of a campaign, except its own forks
START = 1.5  # seconds before an interpreter can handle a signal


class Ended(NamedTuple):
    status: int | None  # None: it hung
    said: str


class Running:
    """One process in a fork of this one; several as the command that a user types, in a separate session."""

    def __init__(self, job: Job, folder: Path, cache: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.began, self.job = time.monotonic(), job
        env = {
            "CONTRASTIVE_ENCODERS_CACHE": str(cache),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HYDRA_FULL_ERROR": "",
            MARK: str(os.getpid()),
        }
        if job.processes == 1:
            self.fork = Started(job.target, job.command(), folder, **env)
            self.number = int(self.fork.process.pid or 0)
            return
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        launch = [job.target] if job.target.endswith(".py") else ["-m", "contrastive_encoders", job.target]
        self.process = subprocess.Popen(
            [sys.executable, *launch, *job.command()],
            cwd=folder,
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, **env, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,
        )
        self.number = self.process.pid

    def is_over(self) -> bool:
        return not self.fork.process.is_alive() if self.job.processes == 1 else self.process.poll() is not None

    def wait(self, until: float) -> None:
        """Wait until this many seconds after its start, or until it has ended."""
        while time.monotonic() - self.began < until and not self.is_over():
            time.sleep(0.002)

    def hit(self, number: int, whom: str) -> None:
        """Send a signal; ``whom``: the process that was started, all, or one that it started."""
        if whom == "all" and self.job.processes > 1:
            os.killpg(self.number, number)
        elif whom == "rank" and (ranks := children_of(self.number)):
            os.kill(ranks[-1], number)
        elif not self.is_over():
            os.kill(self.number, number)

    def finish(self) -> Ended:
        self.wait(LONGEST)
        hung = not self.is_over()
        if hung:
            self.hit(signal.SIGKILL, "all")
        if self.job.processes == 1:
            self.fork.process.join(10)
            status, said = self.fork.process.exitcode, self.fork._read("err") + self.fork._read("out")
        else:
            status = self.process.wait(10)
            self.log.seek(0)
            said = self.log.read()
            self.log.close()
        return Ended(None if hung else status, said)


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def children_of(number: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[1]) == number and fields[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def orphans() -> list[int]:
    """Return the processes of this campaign's commands that still run without their command."""
    found, mark = [], f"{MARK}={os.getpid()}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_for_orphans(seconds: float) -> list[int]:
    end = time.monotonic() + seconds
    while (left := orphans()) and time.monotonic() < end:
        time.sleep(0.05)
    return left
