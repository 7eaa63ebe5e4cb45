"""Signs of life of processes that write one data set, so that those that wait notice a lost one."""

import logging
import shlex
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from command.children import words_again
from command.processes import SAY_AFTER, spans
from synthesis.shards.store import RECORDS_FOLDER, SynthesisFailed

SECONDS_BETWEEN = 5.0  # two signs of life
SECONDS_OF_SILENCE = 180.0  # after which a process counts as lost

log = logging.getLogger(__name__)


class Heartbeat:
    """While it is entered, this process touches ``FOLDER/.shards/alive-RANK`` every few seconds, unless it is alone.

    The times that are compared are those of the files, so the clocks of several hosts need not agree.
    """

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.folder, self.rank, self.world = folder / RECORDS_FOLDER, rank, world
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._touch, daemon=True)
        self.waiting_since: float | None = None
        self.tells_at: float | None = None

    def __enter__(self) -> Self:
        if self.world > 1:
            self.folder.mkdir(parents=True, exist_ok=True)
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

    def watch(self, folder: Path, missing: Sequence[int]) -> None:
        """Say, soon and then each minute, which processes the ``missing`` shards of this folder are waited for from.

        Raises:
            SynthesisFailed: one of these processes is lost.
        """
        parts: dict[int, list[int]] = {}
        for number in missing:
            parts.setdefault(number % self.world, []).append(number)
        silences = self._silences(parts)
        shown = [
            f"shards {spans(parts[rank], self.world)} of process {rank} of {self.world}"
            for rank in sorted(silences or parts)
        ]
        if silences:
            raise SynthesisFailed(
                f"{folder}: {', '.join(shown)} are missing, and no sign of life has come from there for "
                f"{min(silences.values()):.0f} seconds. What is whole is there; with any number of processes this goes "
                f"on: python -m synthesis {shlex.join(words_again())}"
            )
        now = time.monotonic()
        self.tells_at = self.tells_at or now + SAY_AFTER
        if now > self.tells_at:
            log.info("%s: waiting for %s", folder, ", ".join(shown))
            self.tells_at = now + 60

    def _silences(self, ranks: Iterable[int]) -> dict[int, float]:
        """The processes that have been silent for too long since this one began to wait, and for how many seconds."""
        if self.world == 1:
            return {}
        now = self._last(self.rank)
        self.waiting_since = self.waiting_since or now
        silent = {rank: now - max(self._last(rank), self.waiting_since) for rank in ranks if rank != self.rank}
        return {rank: seconds for rank, seconds in silent.items() if seconds > SECONDS_OF_SILENCE}

    def _touch(self) -> None:
        while not self.stop.wait(SECONDS_BETWEEN):
            self._file(self.rank).touch()

    def _last(self, rank: int) -> float:
        try:
            return self._file(rank).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _file(self, rank: int) -> Path:
        return self.folder / f"alive-{rank}"
