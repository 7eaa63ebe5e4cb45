"""AdamW, Adafactor, and the learning-rate schedules of the published papers, as configured in a run."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from contrastive_encoders.compat import clips_before_step, scaled_adafactor
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.layers import decayed_rates
from contrastive_encoders.encoders.model_configs import TrainableConfig
from contrastive_encoders.encoders.sharding import is_sharded

Schedule = Callable[[int], float]  # completed optimizer steps -> factor of the learning rate
NAMES = "names"  # key in a checkpoint: names of the weights of a parameter group


def slanted_triangular(total_steps: int, *, warmup_ratio: float, ratio: float) -> Schedule:
    """Return a schedule that increases linearly from 1 / ratio to 1 during warmup, then decreases linearly to 1 /
    ratio.

    It is eq. 3 of Howard and Ruder (2018).
    """
    cut = int(total_steps * warmup_ratio)

    def factor(step: int) -> float:
        step = min(step, total_steps)
        height = step / cut if step < cut else 1 - (step - cut) / max(1, total_steps - cut)
        return (1 + height * (ratio - 1)) / ratio

    return factor


def published_constant(steps_per_epoch: int, epochs: int, *, warmup_ratio: float, ratio: float) -> Schedule:
    """Return the learning-rate schedule of DeCLUTR's published runs, in which the number of completed steps was used as
    the epoch length by mistake.

    AllenNLP 1.1 does this with a lazy reader. The learning rate is constant in the first epoch (base / 32 if there is
    only one epoch) and follows the triangle from the second epoch.
    """

    def factor(step: int) -> float:
        seen = max(1, step) if step < steps_per_epoch else steps_per_epoch
        return slanted_triangular(epochs * seen, warmup_ratio=warmup_ratio, ratio=ratio)(max(1, step))

    return factor


def linear(total_steps: int, *, warmup_ratio: float, from_zero: bool = False) -> Schedule:
    """Return a schedule with linear warmup over ``warmup_ratio`` of the steps, rounded up, and linear decay to zero.

    If ``from_zero`` is True, it is the schedule of transformers: the first warmup step has learning rate zero
    and no effect.
    """
    cut, first = math.ceil(total_steps * warmup_ratio), 0 if from_zero else 1

    def factor(step: int) -> float:
        return (step + first) / cut if step < cut else max(0.0, (total_steps - step) / max(1, total_steps - cut))

    return factor


def linear_constant(total_steps: int, *, warmup_ratio: float) -> Schedule:
    """Return the schedule of GenSE's published runs: a constant learning rate, then linear decay.

    It is constant over ``warmup_ratio`` of the steps, rounded down, and then decays linearly to zero.
    """
    cut = int(total_steps * warmup_ratio)
    return lambda step: 1.0 if step < cut else max(0.0, (total_steps - step) / max(1, total_steps - cut))


def planned_steps(max_steps: int, max_epochs: int | None, steps_per_epoch: int) -> int:
    """Return the number of optimizer steps of a run: the lower of the limits ``max_steps`` and ``max_epochs``, where -1
    (or None epochs) means no limit.

    Raises:
        InputError: If there is no limit, because a schedule needs an end.
    """
    by_epochs = max_epochs * steps_per_epoch if max_epochs is not None and max_epochs >= 0 else None
    limits = [limit for limit in (max_steps if max_steps >= 0 else None, by_epochs) if limit is not None]
    if not limits:
        raise InputError(
            key="max_steps",
            value=-1,
            expected="a limit in max_steps or max_epochs, because the learning-rate schedule needs the number of steps",
        )
    return min(limits)


def make_schedule(
    name: str, *, total_steps: int, steps_per_epoch: int, epochs: int, instances: int, warmup_ratio: float, ratio: float
) -> Schedule:
    """Return the learning-rate schedule with this name.

    - ``slanted_triangular``: over the actual number of optimizer steps.
    - ``paper_literal``: over as many steps as there are training instances (DeCLUTR, section 4.1.2, read literally:
      one epoch never leaves the warmup).
    - ``official_code_bug``: the behavior of the published code if the number of batches is not given.
    - ``linear_constant``: the schedule of GenSE.
    - ``linear``, ``constant``: the usual schedules; ``linear_from_zero``: ``linear`` as in transformers.
    """
    if name == "slanted_triangular":
        return slanted_triangular(total_steps, warmup_ratio=warmup_ratio, ratio=ratio)
    if name == "paper_literal":
        return slanted_triangular(instances, warmup_ratio=warmup_ratio, ratio=ratio)
    if name == "official_code_bug":
        return published_constant(steps_per_epoch, epochs, warmup_ratio=warmup_ratio, ratio=ratio)
    if name in ("linear", "linear_from_zero"):
        return linear(total_steps, warmup_ratio=warmup_ratio, from_zero=name == "linear_from_zero")
    if name == "linear_constant":
        return linear_constant(total_steps, warmup_ratio=warmup_ratio)
    return lambda step: 1.0


class AdamWithoutBiasCorrection(torch.optim.AdamW):
    """AdamW without bias correction, as in BERT's release and DeCLUTR's published runs (``correct_bias=False``).

    Moments start at zero and are not corrected, which makes the first steps larger: 3.2 times at the first step with
    the usual betas. It is implemented by torch's AdamW, with a learning rate and an epsilon that undo its correction.
    """

    _done: int | None = None  # completed steps, counted on the host: reading them from a GPU would synchronize

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._done = None

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure() if closure else None
        if self._done is None:
            self._done = max((int(state["step"]) for state in self.state.values()), default=0)
        self._done += 1
        kept = [(group["lr"], group["eps"], group["weight_decay"]) for group in self.param_groups]
        for group in self.param_groups:
            first, second = (1 - beta**self._done for beta in group["betas"])
            factor = first / math.sqrt(second)
            group["lr"] *= factor
            group["eps"] /= math.sqrt(second)
            group["weight_decay"] /= factor
        super().step()
        for group, (lr, eps, weight_decay) in zip(self.param_groups, kept, strict=True):
            group.update(lr=lr, eps=eps, weight_decay=weight_decay)
        return loss


def adamw(
    module: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    bias_correction: bool,
    schedule: Schedule,
    rates: Mapping[nn.Parameter, float],
) -> dict[str, Any]:
    """Create AdamW and its schedule, as a dictionary for Lightning.

    Biases and norm weights (one-dimensional parameters) have no weight decay. ``rates`` are the learning rates of
    weights of ``module`` that differ from ``lr``, under the same schedule. The fused implementation updates the weights
    in one pass.
    """
    groups: list[dict[str, Any]] = []
    for rate, params in _by_rate(module, lr, rates).items():
        groups += [
            {"params": [p for p in params if p.ndim > 1], "lr": rate, "weight_decay": weight_decay},
            {"params": [p for p in params if p.ndim <= 1], "lr": rate, "weight_decay": 0.0},
        ]
    kind = torch.optim.AdamW if bias_correction else AdamWithoutBiasCorrection
    optimizer = kind(groups, lr=lr, betas=betas, eps=eps, fused=True)
    clips_before_step(optimizer)
    return _with_schedule(optimizer, schedule, module)


def adafactor(
    module: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    schedule: Schedule,
    scaled: bool,
    rates: Mapping[nn.Parameter, float],
) -> dict[str, Any]:
    """Create Adafactor as in T5's fine-tuning, and its schedule, as a dictionary for Lightning.

    There are no relative steps, and updates are clipped at 1. ``scaled`` multiplies the learning rate of each weight by
    its root mean square (Shazeer and Stern, 2018, algorithm 5), as in T5's pretraining. The initial scale of T5's
    weights ranges from 1 (embeddings) to a hundredth (queries), so that a single learning rate does not train random
    weights well.
    """
    from transformers.optimization import Adafactor  # imports peft and bitsandbytes if they are installed

    optimizer = (scaled_adafactor() if scaled else Adafactor)(
        [{"params": params, "lr": rate} for rate, params in _by_rate(module, lr, rates).items()],
        lr=lr,
        weight_decay=weight_decay,
        clip_threshold=1.0,
        scale_parameter=scaled,
        relative_step=False,
    )
    return _with_schedule(optimizer, schedule, module)


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


def _by_rate(module: nn.Module, lr: float, rates: Mapping[nn.Parameter, float]) -> dict[float, list[nn.Parameter]]:
    """Group the trainable weights by learning rate. The group with ``lr`` is first: telemetry reads its learning
    rate.
    """
    found: dict[float, list[nn.Parameter]] = {lr: []}
    for weight in module.parameters():
        if weight.requires_grad:
            found.setdefault(rates.get(weight, lr), []).append(weight)
    return found


def _with_schedule(optimizer: torch.optim.Optimizer, schedule: Schedule, module: nn.Module) -> dict[str, Any]:
    optimizer.register_load_state_dict_pre_hook(
        lambda optimizer, state: _with_current_options(optimizer, state, module)
    )
    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": StepSchedule(optimizer, schedule), "interval": "step"},
    }


class StepSchedule(torch.optim.lr_scheduler.LambdaLR):
    """Learning-rate schedule whose state consists only of the number of steps. Learning rates are those of the
    config.
    """

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {name: state[name] for name in ("last_epoch", "_step_count")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        factors = [schedule(state_dict["last_epoch"]) for schedule in self.lr_lambdas]
        rates = [rate * factor for rate, factor in zip(self.base_lrs, factors, strict=True)]
        super().load_state_dict(super().state_dict() | state_dict | {"_last_lr": rates})
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def names_of_groups(optimizer: torch.optim.Optimizer, module: nn.Module) -> list[list[str]]:
    """Return, for each parameter group, the names of its weights."""
    names = {weight: name for name, weight in module.named_parameters()}
    return [[names[weight] for weight in group["params"]] for group in optimizer.param_groups]


def _with_current_options(optimizer: torch.optim.Optimizer, state: dict[str, Any], module: nn.Module) -> dict[str, Any]:
    """Return the optimizer state of a checkpoint, with its options replaced by those of the current parameter groups.

    Moments and step counts are restored. Learning rate, weight decay, betas, and epsilon are those of the config.

    Raises:
        InputError: If the state belongs to other weights.
    """
    saved = _regroup(state["param_groups"], names_of_groups(optimizer, module))
    own = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return state | {"param_groups": [group | options for group, options in zip(saved, own, strict=True)]}


def _regroup(saved: list[dict[str, Any]], own: list[list[str]]) -> Iterator[dict[str, Any]]:
    """Yield the saved parameter groups, rearranged to match the current groups, without the names of weights.

    Weights are grouped by learning rate, so that the same weights may be grouped differently in a checkpoint.
    """
    group_of = {name: group for group in saved for name in group.get(NAMES, ())}
    number_of = {
        name: number for group in saved for name, number in zip(group.get(NAMES, ()), group["params"], strict=False)
    }
    if group_of and {name for group in own for name in group} == group_of.keys():
        saved = [{**group_of.get(next(iter(names), ""), {}), "params": [*map(number_of.get, names)]} for names in own]
    if [len(group["params"]) for group in saved] != [len(names) for names in own]:
        raise InputError(
            location="resume",
            expected=f"an optimizer state for {sum(map(len, own))} weights",
            value=f"a state for {sum(len(group['params']) for group in saved)} weights",
            hint="Set freeze and model.lora as in the run of that checkpoint.",
        )
    yield from ({key: value for key, value in group.items() if key != NAMES} for group in saved)
