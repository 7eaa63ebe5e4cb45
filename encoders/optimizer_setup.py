"""Setup of the optimizer, the learning-rate schedule, and gradient clipping."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.layers import decayed_rates
from contrastive_encoders.encoders.model_configs import TrainableConfig
from contrastive_encoders.encoders.optimizers import adafactor, adamw, make_schedule, planned_steps
from contrastive_encoders.encoders.sharding import full_tensor, is_sharded


def optimizer_of(
    settings: TrainableConfig,
    module: nn.Module,
    transformer: PreTrainedModel,
    rates: Mapping[nn.Parameter, float],
    trainer: Any,
) -> dict[str, Any]:
    """Return the dictionary with the optimizer and the schedule that Lightning's ``configure_optimizers`` must return.

    ``rates`` are learning rates of weights outside the transformer that differ from ``lr``.

    Raises:
        InputError: If all weights are frozen, or if the run has no limit, which a schedule needs.
    """
    # Not trainer.estimated_stepping_batches: with max_epochs, it sets up the loader before its state is restored,
    # and a resumed run would restart its epoch.
    steps_per_epoch = len(trainer.datamodule.train_dataloader())
    total_steps = planned_steps(trainer.max_steps, trainer.max_epochs, steps_per_epoch)
    schedule = make_schedule(
        settings.lr_schedule,
        total_steps=total_steps,
        steps_per_epoch=steps_per_epoch,
        epochs=math.ceil(total_steps / steps_per_epoch),
        instances=trainer.datamodule.num_examples,
        warmup_ratio=settings.warmup_ratio,
        ratio=settings.schedule_ratio,
    )
    if not any(weight.requires_grad for weight in module.parameters()):
        raise InputError(
            key="freeze",
            value=settings.freeze,
            expected="a value that does not freeze all weights",
            hint="Freeze fewer layers.",
        )
    rates = decayed_rates(transformer, settings.lr, settings.layer_decay) | dict(rates)
    if settings.optimizer != "adamw":
        if is_sharded(module):
            raise InputError(
                key="model.optimizer",
                value=settings.optimizer,
                expected="adamw, because trainer=fsdp shards the weights",
                hint="Choose a learning rate (model.lr) for AdamW; 2e-5 is usual.",
            )
        return adafactor(
            module,
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            schedule=schedule,
            scaled=settings.optimizer == "adafactor_scaled",
            rates=rates,
        )
    return adamw(
        module,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        betas=(settings.betas[0], settings.betas[1]),
        eps=settings.eps,
        bias_correction=settings.bias_correction,
        schedule=schedule,
        rates=rates,
    )


def clip_gradients(optimizer: Any, most: float) -> Tensor:
    """Clip the gradients of an optimizer's weights, in place, to a norm of at most ``most``.

    Return the norm before clipping, as a tensor on the device.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return full_tensor(nn.utils.clip_grad_norm_(weights, most))
