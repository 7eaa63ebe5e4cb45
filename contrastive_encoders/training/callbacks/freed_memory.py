"""Reuse of freed memory during training on a CPU, while there is enough memory."""

import resource
from typing import Any

import pytorch_lightning as pl

from contrastive_encoders.runtime.malloc import available_memory, can_reuse_freed_memory, reuse_freed_memory

# Available memory, as a multiple of the peak memory of this process: reuse starts at the first, and ends below the
# second. Reuse increased a peak of 5.6 GiB to 8.3 GiB.
ENABLE, DISABLE = 2.5, 0.4


class FreedMemoryReuse(pl.Callback):
    """Callback that lets malloc keep freed memory from the first step on (`reuse_freed_memory`), on CPUs only.

    The results of training do not change. The processes of the run on this machine share the available memory equally.
    """

    def __init__(self) -> None:
        self.is_enabled = self.was_disabled = False

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.was_disabled or trainer.strategy.root_device.type != "cpu" or not can_reuse_freed_memory():
            return
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        available = available_memory() / trainer.num_devices
        if self.is_enabled and available < DISABLE * peak:
            self._disable()
        elif not self.is_enabled and available >= ENABLE * peak:
            reuse_freed_memory(True)
            self.is_enabled = True

    def teardown(self, *_: Any, **__: Any) -> None:
        self._disable()

    def on_exception(self, *_: Any) -> None:
        self._disable()

    def _disable(self) -> None:
        if self.is_enabled:
            reuse_freed_memory(False)
        self.is_enabled, self.was_disabled = False, True
