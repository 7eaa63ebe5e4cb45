"""Base class of all LightningModules in this package, with optimizer, learning rates, and checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import pytorch_lightning as pl
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel

from contrastive_encoders.core import RECORD_VERSION, InputError, StepOutput
from contrastive_encoders.encoders.loading.backbones import HEAD_PREFIX
from contrastive_encoders.encoders.lora import (
    RECORD,
    check_digest,
    quantize_frozen_layers,
    record_of,
    weights_not_checkpointed,
)
from contrastive_encoders.encoders.model_configs import TrainableConfig
from contrastive_encoders.encoders.optimizers import optimizer_of
from contrastive_encoders.encoders.sharding import full_tensor, is_sharded
from contrastive_encoders.io.checkpoint import VERSION


class TrainedModule(pl.LightningModule):
    """Base class of the models that this package trains.

    ``settings`` is the config, and ``hparams`` contains its values for checkpoints; an objective replaces ``pooling``
    by the pooling of its encoder. A subclass defines its name (``objective``), the class of its batches (``consumes``),
    the architecture of ``backbone=tiny`` (``tiny_backbone``), and the name of the folder that a run exports
    (``product``).
    """

    objective: ClassVar[str]
    consumes: ClassVar[type | tuple[type, ...]]
    tiny_backbone: ClassVar[str] = "masked_lm"
    product: ClassVar[str] = "encoder"  # one of io.model_names.PRODUCTS; export/run_export.py writes it
    needs: ClassVar[str] = ""  # requirement on a batch for `can_learn` to be true
    remedy: ClassVar[str] = ""  # a sentence: how to change the data accordingly
    resolved_settings: Mapping[str, str] = {}  # setting that depends on the backbone -> its value and the reason
    gradient_norm: Tensor | None = None  # gradient norm of the last step before clipping
    log_step: bool = True  # whether the metrics of the current step are logged; set by callbacks.telemetry
    hparams: Any  # Lightning's type does not define the keys

    settings: TrainableConfig

    def __init__(self, settings: TrainableConfig) -> None:
        super().__init__()
        self.settings = settings
        self.save_hyperparameters(asdict(settings), logger=False)  # loggers get the full config from the run

    @property
    def transformer(self) -> PreTrainedModel:
        raise NotImplementedError

    def check_batch(self, batch: Any) -> None:
        """Check, without a forward pass, that a batch contains everything that the settings require.

        Raises:
            InputError: If something is missing.
        """

    def count_negatives(self, batch: Any) -> Tensor | None:
        """Return the number of negatives for each anchor in a global batch, or None if the loss uses no negatives."""
        return None

    def can_learn(self, batch: Any, num_negatives: Tensor | None) -> bool:
        """Return whether the loss of a global batch can have a nonzero gradient. ``num_negatives`` is the result of
        `count_negatives`.
        """
        return True

    @staticmethod
    def step_output(loss: Tensor, metrics: dict[str, Tensor], batch: Any, real_tokens: int, padding: int) -> StepOutput:
        """Return the result of a training step, with the numbers of tokens that were computed."""
        spent = {"examples": len(batch.rows), "real_tokens": real_tokens, "padded_tokens": padding}
        return {"loss": loss, "metrics": metrics, "spent": spent}

    def special_learning_rates(self) -> dict[nn.Parameter, float]:
        """Return the learning rates of weights outside the backbone whose learning rate differs from ``lr``."""
        return {}

    def configure_model(self) -> None:
        """Shard the weights if the trainer's strategy has created a device mesh (hook of Lightning).

        Raises:
            InputError: If this model cannot be sharded.
        """
        if self.device_mesh is not None:
            self.shard(self.device_mesh["data_parallel"])

    def on_train_start(self) -> None:
        """Quantize frozen layers (hook of Lightning).

        It is called after a checkpoint is loaded and callbacks have evaluated the original weights.
        """
        quantize_frozen_layers(self)

    def shard(self, mesh: DeviceMesh) -> None:
        """Shard the weights over a one-dimensional mesh, in place.

        Raises:
            InputError: If this model cannot be sharded.
        """
        raise InputError(key="trainer", value="fsdp", expected=f"ddp, because model={self.objective} cannot be sharded")

    def configure_optimizers(self) -> Any:
        return optimizer_of(self.settings, self, self.transformer, self.special_learning_rates(), self.trainer)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients as Lightning does, and store their norm before the clipping (hook of Lightning)."""
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            self.clip(optimizer, gradient_clip_val)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip(self, optimizer: Any, most: float) -> None:
        """Clip the gradients to a norm of at most ``most``. The norm before clipping is stored in ``gradient_norm``."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.gradient_norm = full_tensor(nn.utils.clip_grad_norm_(weights, most))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["objective"], checkpoint[VERSION] = self.objective, RECORD_VERSION
        if (record := record_of(self)) is not None:
            checkpoint[RECORD] = record
            for name in weights_not_checkpointed(self) & checkpoint["state_dict"].keys():
                if not name.startswith(HEAD_PREFIX):  # always loaded from the checkpoint
                    del checkpoint["state_dict"][name]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the weights of the frozen backbone to the loaded checkpoint of a model with adapters (hook of Lightning);
        the file contains only the other weights.
        """
        if RECORD in checkpoint and (frozen := weights_not_checkpointed(self)):
            check_digest(self, checkpoint[RECORD], "resume")
            if is_sharded(self):
                return
            own = self.state_dict()
            checkpoint["state_dict"] = {**checkpoint["state_dict"], **{name: own[name] for name in frozen}}
