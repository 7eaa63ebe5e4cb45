"""Signs of life between processes that share a folder and nothing else.

Each touches a file of its own every few seconds. Who waits for another's shards sees when that one has gone silent,
wherever it runs and however it was started. Times are those of the files, so clocks need not agree.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from synthesis.shards.failures import SynthesisFailed
from synthesis.shards.store import ABOUT

EVERY = 5.0  # seconds
SILENCE = 180.0  # seconds after which a process counts as lost


class Heartbeat:
    """Beats while it is entered. ``rank`` of ``world`` processes that write into ``folder``."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.home, self.rank, self.world = folder / ABOUT, rank, world
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.waiting_since: float | None = None

    def __enter__(self) -> "Heartbeat":
        if self.world > 1:
            self.home.mkdir(parents=True, exist_ok=True)
            self._file(self.rank).touch()
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        if self.world > 1:
            self.thread.join()
            self._file(self.rank).unlink(missing_ok=True)

    def watch(self, missing: Sequence[int]) -> None:
        """``missing`` shards are waited for.

        Raises:
            SynthesisFailed: one whose part they are has been silent for too long since this began to wait.
        """
        if self.world == 1:
            return
        now = self._last(self.rank)
        self.waiting_since = self.waiting_since or now
        for rank in sorted({number % self.world for number in missing} - {self.rank}):
            if (silent := now - max(self._last(rank), self.waiting_since)) > SILENCE:
                own = sum(number % self.world == rank for number in missing)
                raise SynthesisFailed(
                    f"process {rank} of {self.world} has given no sign of life for {silent:.0f} seconds, and {own} of "
                    "its shards are missing. What is whole is there; the same command goes on, with any number of "
                    "processes."
                )

    def _beat(self) -> None:
        while not self.stop.wait(EVERY):
            self._file(self.rank).touch()

    def _last(self, rank: int) -> float:
        try:
            return self._file(rank).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _file(self, rank: int) -> Path:
        return self.home / f"alive-{rank}"
