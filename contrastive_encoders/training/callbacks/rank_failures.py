"""Detect ranks that have died, so that the others report this instead of the timeout of a collective."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import pytorch_lightning as pl
import torch.distributed as dist
from lightning_fabric.strategies.launchers.subprocess_script import _ChildProcessObserver

from contrastive_encoders.core import OutputError
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.io.output_directory import is_alive
from contrastive_encoders.runtime.child_processes import GRACE, TO_LEAVE, works_for_another
from contrastive_encoders.runtime.signals import INTERRUPTED, TERMINATED

TO_BE_GONE = 2.0  # seconds in which a process whose end made another fail is seen to have ended
CUT_OFF = 30.0  # the same where a connection was lost: another does end, however busy the machine is
AGAIN = "The same command continues from the last checkpoint."


class Place(NamedTuple):
    """Where a process is."""

    host: str
    number: int


class Companions(pl.Callback):
    """All ranks get to know where the others are; `named` tells which of them is gone."""

    def __init__(self) -> None:
        _ChildProcessObserver._terminate_all = lambda observer: self._end(observer._child_processes)  # type: ignore
        self.here = Place(socket.gethostname(), os.getpid())
        self.places: list[Place] = []  # by rank
        self.parent = os.getppid()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if trainer.world_size > 1:
            places = [self.here for _ in range(trainer.world_size)]
            dist.all_gather_object(places, self.here)
            self.places = places

    @contextmanager
    def named(self) -> Iterator[None]:
        """Around what the processes do together.

        Raises:
            TrainingError: another process has ended, and this one cannot go on; the first of those that are left says
                which, the others leave with status 1.
        """
        try:
            yield
        except SystemExit as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # while it was set up: Lightning makes that status 1
                raise KeyboardInterrupt from None
            raise
        except (OutputError, TrainingError):  # it says itself what is wrong; the others may have left as they should
            raise
        except RuntimeError as error:  # of torch, whatever the backend
            end = time.monotonic() + (CUT_OFF if _lost_a_connection(error) else TO_BE_GONE)
            gone = self._gone(end)
            if not self.places and self._is_left_alone(end):  # the first of them ended before all had met
                raise SystemExit(1) from error
            if not gone:
                raise
            left = [rank for rank in range(len(self.places)) if rank not in gone]
            if self.places[left[0]] != self.here:
                raise SystemExit(1) from error
            numbers = " and ".join(str(rank) for rank in gone)
            raise TrainingError(
                f"process {numbers} of {len(self.places)} is gone: it was killed, or said above what was wrong. {AGAIN}"
            ) from error

    def _end(self, children: Sequence[subprocess.Popen[Any]]) -> NoReturn:
        """Of the first process, when another has left with a status that is not 0.

        Lightning sends it SIGKILL within 5 s, and it may be saving. Here it has the time that all processes have; a
        moment where they had not met, as one that waits for another then hears no signal.
        """
        time.sleep(GRACE if self.places else TO_LEAVE)
        for child in children:
            child.kill()
        left = [child.poll() for child in children]
        os._exit(next((status for status in left if status in (INTERRUPTED, TERMINATED)), 1))

    def _is_left_alone(self, end: float) -> bool:
        """Whether the process ends until then that started this one of several."""
        while works_for_another() and time.monotonic() < end:
            if os.getppid() != self.parent:
                return True
            time.sleep(0.05)
        return False

    def _gone(self, end: float) -> list[int]:
        """The ranks that have ended by then, of those on this host."""
        while self.places:
            places = list(enumerate(self.places))
            gone = [rank for rank, (host, number) in places if host == self.here.host and not is_alive(number)]
            if gone or time.monotonic() > end:
                return gone
            time.sleep(0.05)
        return []


def _lost_a_connection(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistNetworkError) or "onnection" in str(error)  # gloo: "Connection closed by peer"
