"""Save checkpoints: ``last.ckpt``, from which a run resumes, and ``best.ckpt``, which is exported.

Files are written atomically: to a temporary file in the same folder, synced, and renamed. The former ``last.ckpt`` is
kept as ``previous.ckpt``. One small reduction per step lets all ranks agree on whether to save now (by rank 0's clock)
and whether a signal was received.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor
from torch.distributed.tensor import DTensor

from contrastive_encoders.compat import version_of
from contrastive_encoders.core import InputError
from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.encoders.sharding import is_part_of
from contrastive_encoders.io.atomic import atomic_link, sync_folder
from contrastive_encoders.io.checkpoint import load_checkpoint, remove_optimizer_states, remove_unused_shards
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.io.output_directory import overwrite_hint
from contrastive_encoders.training import collectives as agreement
from contrastive_encoders.training.callbacks.checkpoint_io import SafeCheckpointIO, reason
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption
from contrastive_encoders.training.callbacks.telemetry import is_last_step
from contrastive_encoders.training.metrics_csv import MetricsCSV

LAST, BEST, PREVIOUS = "last.ckpt", "best.ckpt", "previous.ckpt"
BETTER = {"max": lambda new, old: new > old, "min": lambda new, old: new < old}
FOR_WEIGHTS = ("state_dict", "global_step")  # entries that best.ckpt needs
WITHOUT_OPTIMIZER = (*FOR_WEIGHTS, "loops", "callbacks")
NEEDED = (*WITHOUT_OPTIMIZER, "optimizer_states")


log = logging.getLogger(__name__)


class RunCheckpoints(Checkpoint):
    """Callback that saves a checkpoint every ``every_n_steps`` optimizer steps, every ``every_n_minutes`` minutes, at
    the end of training, and when the process receives a signal.

    ``monitor`` is a key of ``trainer.callback_metrics``; among equal values the earlier step is kept. Without a
    monitored value the best checkpoint is the last one. ``best_score`` is None until there is a score. Training ends
    after ``patience`` consecutive monitored values that are no better than the best one. Rank 0 calls ``saved``
    whenever the files of a save are complete.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every_n_steps: int | None,
        every_n_minutes: float | None,
        monitor: str | None,
        mode: str,
        patience: int | None,
        saved: Callable[[], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.every_n_steps = every_n_steps
        self.every_n_minutes = every_n_minutes
        self.monitor = monitor
        self.mode = mode
        self.patience = patience
        self.saved = saved
        self.best_score: float | None = None
        self.best_step: int | None = None
        self.no_better = 0  # consecutive monitored values
        self._io = SafeCheckpointIO()
        self._step_seen = 0
        self._saved_step: int | None = None  # step of last.ckpt, which also contains the best score at that step
        self._saved_best_step: int | None = None
        self._last_is_good = False  # an unreadable last.ckpt must not replace previous.ckpt
        self._best_is_damaged = False
        self._last_value: Any = None
        self._clock = time.monotonic()

    @property
    def last_path(self) -> Path:
        return self.folder / LAST

    @property
    def best_path(self) -> Path:
        return self.folder / BEST

    def state_dict(self) -> dict[str, Any]:
        return {
            "best_score": self.best_score,
            "best_step": self.best_step,
            "monitor": self.monitor,
            "mode": self.mode,
            "no_better": self.no_better,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best score if the monitored metric is the same as in the checkpoint, and this folder contains an
        undamaged best.ckpt.
        """
        same_score = (state_dict.get("monitor"), state_dict.get("mode")) == (self.monitor, self.mode)
        if not same_score or not self.best_path.exists() or self._best_is_damaged:
            return
        self.best_score = state_dict["best_score"]
        self.best_step = state_dict["best_step"]
        self.no_better = state_dict["no_better"]

    # ------------------------------------------------------------------------------- Lightning's hooks

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        trainer.strategy.checkpoint_io = self._io

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        resumed = Path(str(trainer.ckpt_path)).resolve()
        self._last_is_good = resumed == self.last_path.resolve()
        if self._last_is_good:
            self._saved_step = checkpoint["global_step"]
        why = unreadable(self.best_path, FOR_WEIGHTS) if self.best_path.exists() else None
        (damaged,) = agreement.maximum([why is not None])
        self._best_is_damaged = bool(damaged)
        if damaged and trainer.is_global_zero:
            log.warning(
                "%s: %s. The best checkpoint will be selected among the steps from now on.", self.best_path, why
            )
            atomic_link(resumed, self.best_path)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Correct the epoch counters in the checkpoint: Lightning counts an epoch as complete if ``max_steps`` ends it
        before its last batch. Otherwise a run that is resumed with more steps would end as many epochs too early as
        were counted too many.
        """
        loop = checkpoint["loops"]["fit_loop"]
        if loop["epoch_loop.batch_progress"]["is_last_batch"]:
            return
        for counts in loop["epoch_progress"].values():
            for name in ("processed", "completed"):
                counts[name] = min(counts[name], counts["started"] - 1)
        checkpoint["epoch"] = loop["epoch_progress"]["current"]["processed"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._clock = time.monotonic()
        self._step_seen = trainer.global_step
        self._saved_best_step = self.best_step
        _begin_epoch(trainer.fit_loop)
        self._end_without_patience(trainer)  # again, if the process was killed before the results were written

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._step_seen:
            return  # between optimizer steps; the accumulated gradients are not in the checkpoint
        self._step_seen = trainer.global_step
        interruption = Interruption.of(trainer)
        signum, by_clock = self._agree(pl_module, interruption)
        best = self._improved(trainer) or (is_last_step(trainer) and self._is_unscored())
        due = self.every_n_steps is not None and trainer.global_step % self.every_n_steps == 0
        self._save(trainer, last=due or by_clock or signum != 0, best=best)
        if signum and interruption is not None:
            interruption.stop(trainer, signum)
        self._end_without_patience(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        improved = self._improved(trainer)  # by a score of the last step
        interruption = Interruption.of(trainer)
        finished = interruption is None or interruption.exit_status is None
        best = improved or (finished and self._is_unscored())
        stale = self._saved_step != trainer.global_step or self._saved_best_step != self.best_step
        if stale or (best and self._has_other_weights(trainer)):
            self._save(trainer, last=stale, best=best)
        elif best:  # it is last.ckpt; saving it again after a kill would count another epoch
            if trainer.is_global_zero:
                atomic_link(self.last_path, self.best_path)
                sync_folder(self.folder)
            trainer.strategy.barrier("checkpoint is in place")

    # ------------------------------------------------------------------------------------------- when

    def _agree(self, pl_module: pl.LightningModule, interruption: Interruption | None) -> tuple[int, bool]:
        waited = time.monotonic() - self._clock
        # other ranks' clocks differ by moments, which is enough to disagree on one step in a thousand
        minutes = self.every_n_minutes if pl_module.global_rank == 0 else None
        by_clock = minutes is not None and waited >= 60 * minutes
        received = interruption.received if interruption is not None else 0
        signum, due = agreement.maximum([received, by_clock])
        return int(signum), bool(due)

    def _improved(self, trainer: pl.Trainer) -> bool:
        """Return whether the monitored score has a new value that is better than the best value. A value that
        merely remains in the metrics is not new.
        """
        if self.monitor is None or (found := trainer.callback_metrics.get(self.monitor)) is None:
            return False
        if self._is_the_same(found):
            return False
        score = float(found)
        beaten = self.best_score is None or BETTER[self.mode](score, self.best_score)
        if not beaten or math.isnan(score):  # a correlation of constant embeddings
            self.no_better += 1
            return False
        self.best_score, self.best_step, self.no_better = score, trainer.global_step, 0
        return True

    def _end_without_patience(self, trainer: pl.Trainer) -> None:
        if self.patience is not None and self.no_better >= self.patience and not trainer.should_stop:
            log.info(
                "Training stops early: %s did not improve in %d evaluations since step %s.",
                self.monitor,
                self.no_better,
                self.best_step,
            )
            trainer.should_stop = True

    def _is_the_same(self, found: Any) -> bool:
        """Return whether ``found`` is the same, unmodified tensor as at the previous check, without a device
        synchronization.
        """
        before, self._last_value = self._last_value, found
        if not isinstance(found, Tensor) or not isinstance(before, Tensor):
            return False
        # the former tensor is still referenced, so no other tensor can have its address
        return found.data_ptr() == before.data_ptr() and version_of(found) == version_of(before)

    def _is_unscored(self) -> bool:
        """Return whether there has been no monitored score yet, so that the last checkpoint counts as the best."""
        return self.best_step is None

    def _has_other_weights(self, trainer: pl.Trainer) -> bool:
        """Return whether the current weights differ from those in last.ckpt, for example because a callback has
        replaced the weights by an average. This is a collective operation.
        """
        now, other = trainer.strategy.lightning_module_state_dict(), False
        if trainer.is_global_zero or any(isinstance(tensor, DTensor) for tensor in now.values()):
            try:
                saved = load_checkpoint(self.last_path)["state_dict"]
                other = not all(name in now and is_part_of(saved[name], now[name]) for name in saved)
            except (OSError, CorruptFileError):
                other = True
        (found,) = agreement.maximum([other])
        return bool(found)

    # -------------------------------------------------------------------------------------------- how

    def _save(self, trainer: pl.Trainer, last: bool, best: bool) -> None:
        """Save last.ckpt, best.ckpt, or both. This is a collective operation. If both files are due at the same step,
        the file is written once and linked.
        """
        if not last and not best:
            return
        for logger in trainer.loggers:
            if isinstance(logger, MetricsCSV):
                logger.save()
        temporary = self.folder / "writing.part"  # not *.ckpt: a killed process may leave it
        trainer.save_checkpoint(temporary)
        self._refuse_failed_write(trainer)
        if trainer.is_global_zero:
            if best:  # first, so that a best.ckpt exists whenever last.ckpt is of the final step
                atomic_link(temporary, self.best_path)
            if last:
                if self._last_is_good and self.last_path.exists():
                    self.last_path.replace(self.folder / PREVIOUS)
                temporary.replace(self.last_path)
            else:
                temporary.unlink()
            sync_folder(self.folder)
            remove_unused_shards(self.folder)
            if self.saved is not None:
                self.saved()
        if last:
            self._last_is_good = True
            self._saved_step, self._saved_best_step = trainer.global_step, self.best_step
            self._clock = time.monotonic()
        trainer.strategy.barrier("checkpoint is in place")

    def _refuse_failed_write(self, trainer: pl.Trainer) -> None:
        error = self._io.error
        (failed,) = agreement.maximum([error is not None])
        if failed:
            why = reason(error) if error is not None else "see the message of rank 0"
            raise TrainingError(
                f"Cannot write the checkpoint of step {trainer.global_step} to {self.folder}: {why}. The previous "
                "checkpoint is kept. Free disk space and rerun the same command to resume from it."
            ) from error


def _begin_epoch(loop: Any) -> None:
    """Correct the counters of Lightning's fit loop if a checkpoint of the end of an epoch is resumed. Lightning would
    not count the next epoch as started (if the checkpoint was saved with the last batch), or end it after one batch (if
    it was saved at the end of training).
    """
    epochs, batches = loop.epoch_progress.current, loop.epoch_loop.batch_progress
    if epochs.processed != epochs.started:
        return
    loop.reset_restart_stage()
    if batches.current.completed == batches.current.ready:
        batches.reset_on_run()


def find_resumable(folder: str | Path) -> tuple[Path | None, str | None]:
    """Return the path of the checkpoint to resume from, and a warning if it is not the newest checkpoint. Return (None,
    None) if there is no checkpoint.

    Raises:
        InputError: there are checkpoints, but none is readable.
    """
    folder = Path(folder)
    last, previous = folder / LAST, folder / PREVIOUS
    if not last.exists() and not previous.exists():
        return None, None
    broken = unreadable(last)
    if broken is None:
        return last, None
    if unreadable(previous) is None:
        return previous, f"{last} cannot be read ({broken}). Resuming from {PREVIOUS}, the checkpoint before it."
    raise InputError(
        location=str(last),
        expected=f"a complete checkpoint in this file or in {PREVIOUS}",
        value=f"a file that cannot be read ({broken})",
        hint=overwrite_hint("output_dir"),
    )


def keep_resumable(folder: Path) -> None:
    """Delete all checkpoints of a finished run except last.ckpt, from which the run can be resumed, and the weights in
    best.ckpt.

    A sharded best.ckpt keeps its optimizer state, which is in the same files.
    """
    last, best = folder / LAST, folder / BEST
    if not last.exists() or unreadable(last):
        return
    (folder / PREVIOUS).unlink(missing_ok=True)
    if best.exists() and not best.samefile(last):
        remove_optimizer_states(best)
    remove_unused_shards(folder)


def keep_best_weights(folder: Path) -> None:
    """Delete all checkpoints of a stage except the weights in best.ckpt, from which the next stage starts."""
    best = folder / BEST
    if not best.exists() or unreadable(best, WITHOUT_OPTIMIZER):
        return
    for name in (PREVIOUS, LAST):
        (folder / name).unlink(missing_ok=True)
    remove_optimizer_states(best)
    remove_unused_shards(folder)


def unreadable(path: str | Path, needed: Sequence[str] = NEEDED) -> str | None:
    """Return the reason why a checkpoint cannot be loaded, as a phrase, or None if it can be loaded. All of its
    contents are compared with their checksums.

    Args:
        needed: entries that the checkpoint must contain.
    """
    if not Path(path).exists():
        return "no such file"
    try:
        found = load_checkpoint(path)
    except CorruptFileError as error:
        return str(error)
    missing = [name for name in needed if name not in found]
    return f"it has no entry {missing[0]!r}" if missing else None
