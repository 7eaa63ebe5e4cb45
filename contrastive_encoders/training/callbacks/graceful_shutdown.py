"""Graceful shutdown on SIGTERM or SIGINT: finish the current step, save a checkpoint, stop, and report the exit code.

Lightning's own handlers run collective operations in the signal handler, and hang when the signal reaches an entire
process group. The handlers here set a flag. ``RunCheckpoints`` lets the ranks agree on it at the end of a step, so it
does not matter which of them received the signal.
"""

import logging
import signal
import threading
from types import FrameType
from typing import Any

import pytorch_lightning as pl

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption(pl.Callback):
    """Callback that handles SIGTERM and SIGINT during ``fit``. Afterwards, ``exit_status`` is the exit code (143 for
    SIGTERM, 130 for SIGINT), or None if there was no signal.

    A second SIGINT raises KeyboardInterrupt immediately, for users who cannot wait for the step and the checkpoint.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number on this rank
        self.exit_status: int | None = None
        self._originals: dict[signal.Signals, Any] = {}

    @classmethod
    def of(cls, trainer: pl.Trainer) -> "Interruption | None":
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a connector sets it
        return next((callback for callback in callbacks if isinstance(callback, cls)), None)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if threading.current_thread() is threading.main_thread():  # other threads do not receive signals
            self._originals = {number: signal.getsignal(number) for number in SIGNALS}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for number in self._originals:
            # here and not in setup, because Lightning installs its own handlers in between
            signal.signal(number, self._note)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        for number, handler in self._originals.items():
            signal.signal(number, handler)
        self._originals = {}

    def stop(self, trainer: pl.Trainer, signum: int) -> None:
        """Stop the training, and set the exit code for the signal. All ranks call this after the state is saved."""
        self.exit_status = 128 + signum
        log.info("Stopped by %s. Rerun the same command to resume from here.", signal.Signals(signum).name)
        trainer.should_stop = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
