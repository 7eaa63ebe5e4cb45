"""Detect ranks that have died, so that the other ranks report this failure instead of the timeout of a collective
operation.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytorch_lightning as pl
import torch.distributed as dist

from contrastive_encoders.core import OutputError
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.core.runtime.process_group import gather
from contrastive_encoders.io.output_directory import is_alive

EXIT_GRACE_S = 2.0  # a process whose exit made another one fail is detected within this time
# the same after a lost connection: the other process does exit, but slowly on a busy machine
CONNECTION_LOST_GRACE_S = 30.0
RESUME_HINT = "Rerun the same command to resume from the last checkpoint."


class ProcessLocation(NamedTuple):
    """Host and process ID of a rank."""

    host: str
    number: int


class RankFailureMonitor(pl.Callback):
    """Callback that records the host and process ID of every rank. `name_dead_ranks` reports the ranks that have
    died.
    """

    def __init__(self) -> None:
        self.here = ProcessLocation(socket.gethostname(), os.getpid())
        self.places = gather(self.here)  # by rank

    @contextmanager
    def name_dead_ranks(self) -> Iterator[None]:
        """Context manager for a collective operation that reports the ranks that have died if the operation fails.

        Raises:
            TrainingError: another rank has died, and this one cannot continue. The first of the remaining ranks names
                it; the others exit with code 1.
        """
        try:
            yield
        except SystemExit as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # Lightning converts it to exit code 1
                raise KeyboardInterrupt from None
            raise
        except (OutputError, TrainingError):  # it has its own message; the other ranks may have exited properly
            raise
        except RuntimeError as error:  # raised by torch for every backend
            dead = self._find_dead(CONNECTION_LOST_GRACE_S if _lost_a_connection(error) else EXIT_GRACE_S)
            if not dead:
                raise
            alive = [place for rank, place in enumerate(self.places) if rank not in dead]
            if alive[0] != self.here:
                raise SystemExit(1) from error
            numbers = " and ".join(map(str, dead))
            raise TrainingError(
                f"Rank {numbers} of {len(self.places)} exited unexpectedly: it was killed or failed with the error "
                f"above. {RESUME_HINT}"
            ) from error

    def _find_dead(self, seconds: float) -> list[int]:
        """Return the ranks on this host that have died. Wait at most ``seconds`` for the first one."""
        end = time.monotonic() + seconds
        others = [(rank, place) for rank, place in enumerate(self.places) if place != self.here]
        while others:
            dead = [rank for rank, place in others if place.host == self.here.host and not is_alive(place.number)]
            if dead or time.monotonic() > end:
                return dead
            time.sleep(0.05)
        return []


def _lost_a_connection(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistNetworkError) or "onnection" in str(error)  # gloo: "Connection closed by peer"
