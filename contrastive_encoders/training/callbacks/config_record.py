"""Store a run's config in its checkpoints, and prevent a checkpoint from replacing callback arguments that the current
config sets.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from contrastive_encoders.core import ResumedSettings
from contrastive_encoders.encoders.optimizers import NAMES, names_of_groups
from contrastive_encoders.encoders.sharding import is_sharded
from contrastive_encoders.training.neighbor_batches import GROUPED_ROWS
from contrastive_encoders.training.resume import CONFIG_ENTRY, RATES_DIFFER, RESUMED, as_entry


class ConfigRecord(pl.Callback):
    """Callback that stores all keys of the run, the number of grouped rows, and the names of the weights in each
    checkpoint. After a checkpoint is loaded, the callback restores the callback arguments that the config sets.

    Some callbacks restore one of their arguments from a checkpoint, as Lightning's EarlyStopping does with its
    patience.

    Args:
        recipe: all keys of the run.
        rows: number of rows in the groups of each data set that has groups of similar rows.
    """

    def __init__(self, recipe: Mapping[str, Any], rows: Mapping[str, int]) -> None:
        self.recipe, self.rows = as_entry(recipe), dict(rows)
        self.rates_differ = False  # whether earlier steps had different learning rates than the current schedule
        self.resumed: list[ResumedSettings] = []
        self._arguments: list[tuple[pl.Callback, dict[str, Any]]] = []

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        checkpoint |= {CONFIG_ENTRY: self.recipe, RATES_DIFFER: self.rates_differ, RESUMED: self.resumed}
        checkpoint |= {GROUPED_ROWS: self.rows} if self.rows else {}
        if is_sharded(pl_module):  # its groups have names instead of numbers
            return
        for optimizer, state in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
            for group, names in zip(state["param_groups"], names_of_groups(optimizer, pl_module), strict=True):
                group[NAMES] = names

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Remember the arguments of all callbacks before Lightning restores the states of the callbacks."""
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a connector sets it
        for callback in callbacks:
            names = inspect.signature(type(callback).__init__).parameters
            kept = {name: vars(callback)[name] for name in names if name in vars(callback)}
            self._arguments.append((callback, kept))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for callback, kept in self._arguments:
            vars(callback).update(kept)
