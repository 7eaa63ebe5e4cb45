"""`TrainedModule`, the base class of every LightningModule here: its optimiser, learning rates and checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import pytorch_lightning as pl
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel

from contrastive_encoders.core import RECORD_VERSION, InputError
from contrastive_encoders.encoders.loading.backbones import HEAD_PREFIX
from contrastive_encoders.encoders.lora import (
    RECORD,
    check_digest,
    quantize_frozen_layers,
    record_of,
    weights_not_checkpointed,
)
from contrastive_encoders.encoders.model_configs import TrainableConfig
from contrastive_encoders.encoders.optimizer_setup import clip_gradients, optimizer_of
from contrastive_encoders.encoders.sharding import is_sharded
from contrastive_encoders.io.checkpoint import VERSION


class TrainedModule(pl.LightningModule):
    """``settings`` are what it is made from, and ``hparams`` the same as a checkpoint has them.

    A subclass says what it is called (``objective``), which batches it learns from (``consumes``), which architecture
    ``backbone=tiny`` has (``tiny_backbone``), and the folder that a run leaves (``product``).
    """

    objective: ClassVar[str]
    consumes: ClassVar[type | tuple[type, ...]]
    tiny_backbone: ClassVar[str] = "masked_lm"
    product: ClassVar[str] = "encoder"  # of io.model_names.PRODUCTS; export/run_export.py writes it
    needs: ClassVar[str] = ""  # what a batch must have so that `can_learn` is true
    remedy: ClassVar[str] = ""  # a sentence: how data get it
    settled: Mapping[str, str] = {}  # a key that was left to the backbone -> what it has become, and why
    gradient_norm: Tensor | None = None  # of the last step, before it was clipped
    hparams: Any  # Lightning's type knows no keys

    settings: TrainableConfig

    def __init__(self, settings: TrainableConfig) -> None:
        super().__init__()
        self.settings = settings
        self.save_hyperparameters(asdict(settings), logger=False)  # the run gives the loggers the whole config

    @property
    def transformer(self) -> PreTrainedModel:
        """The backbone, wherever the module has it."""
        raise NotImplementedError

    def check_batch(self, batch: Any) -> None:
        """Raises InputError where the settings want what a batch of this data does not have; computes nothing."""

    def negatives(self, batch: Any) -> Tensor | None:
        """Return the number of negatives of each anchor of a global batch; None if the loss has none."""
        return None

    def can_learn(self, batch: Any, negatives: Tensor | None) -> bool:
        """Return whether a term of the loss can have a gradient on a global batch with these `negatives`."""
        return True

    def own_rates(self) -> dict[nn.Parameter, float]:
        """Weights behind the backbone that are trained at another rate than ``lr``."""
        return {}

    def configure_model(self) -> None:
        """Lightning's hook: shard the weights where the trainer's strategy has made a mesh for it.

        Raises:
            InputError: this model cannot be sharded.
        """
        if self.device_mesh is not None:
            self.shard(self.device_mesh["data_parallel"])

    def on_train_start(self) -> None:
        """Lightning's hook, called once the weights of a checkpoint are there and callbacks have scored those as they
        are.
        """
        quantize_frozen_layers(self)

    def shard(self, mesh: DeviceMesh) -> None:
        """Shard the weights over a mesh of one dimension, in place.

        Raises:
            InputError: this model cannot be sharded.
        """
        raise InputError(key="trainer", value="fsdp", expected=f"ddp for model={self.objective}")

    def configure_optimizers(self) -> Any:
        return optimizer_of(self.settings, self, self.transformer, self.own_rates(), self.trainer)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Lightning's hook: what it does by itself, and the norm is kept."""
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            self.clip(optimizer, gradient_clip_val)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip(self, optimizer: Any, most: float) -> None:
        """Clip the gradients to a norm of ``most``; the norm before stays in ``gradient_norm``, on the device."""
        self.gradient_norm = clip_gradients(optimizer, most)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["objective"], checkpoint[VERSION] = self.objective, RECORD_VERSION
        if (record := record_of(self)) is not None:
            checkpoint[RECORD] = record
            for name in weights_not_checkpointed(self) & checkpoint["state_dict"].keys():
                if not name.startswith(HEAD_PREFIX):  # it is read from there, also where it stands still
                    del checkpoint["state_dict"][name]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Weights that a checkpoint of an adapter leaves out are the backbone's, and here already."""
        if RECORD in checkpoint and (frozen := weights_not_checkpointed(self)):
            check_digest(self, checkpoint[RECORD], "resume")
            if is_sharded(self):
                return
            own = self.state_dict()
            checkpoint["state_dict"] = {**checkpoint["state_dict"], **{name: own[name] for name in frozen}}
