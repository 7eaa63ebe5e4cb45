"""Losses of pytorch-metric-learning as functions of two views, created by their class names.

The library is imported only when a loss is requested, because the import takes a second and most runs do not need it.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from contrastive_encoders.losses.gather import gather_rows
from contrastive_encoders.losses.precision import at_least_float32

PairLoss = Callable[[Tensor, Tensor], Tensor]

UNFIT = {
    "BaseMetricLossFunction": "is the base class of all losses",
    "GenericPairLoss": "is a base class of other losses",
    "DynamicSoftMarginLoss": "has a running histogram, which a resumed run would lose",
    "InstanceLoss": "treats a label as the column of a class",
    "VICRegLoss": "takes no labels",
    "BaseMiner": "is the base class of all miners",
    "EmbeddingsAlreadyPackagedAsTriplets": "expects batches that are triplets already",
}


def metric_loss(
    name: str, miner: str | None = None, miner_options: Mapping[str, Any] | None = None, **options: Any
) -> PairLoss:
    """Create a function ``(left_BD, right_BD) -> loss`` from the class names of a loss and a miner.

    Row i of both views has label i, and the rows of all ranks are used. The loss is equal on all ranks, and the
    gradient averaged by DDP is the single-process gradient, except that a random miner draws separately on each rank.
    The loss is computed in float32.

    Args:
        name: Class name of the loss.
        miner: Class name of the miner.
        miner_options: Keyword arguments of the miner.
        **options: Keyword arguments of the loss.

    Raises:
        ValueError: If a name or an option is invalid.
    """
    from pytorch_metric_learning import losses, miners

    loss_function = _build("loss", vars(losses), losses.BaseMetricLossFunction, name, options)
    if any(True for _ in loss_function.parameters()):
        raise ValueError(f"loss {name} with {options} has weights, which no optimizer would train.")
    if miner is None and miner_options:
        raise ValueError(f"miner_options={dict(miner_options)}: expected none, because there is no miner.")
    select = None if miner is None else _build("miner", vars(miners), miners.BaseMiner, miner, miner_options or {})

    def loss(left_BD: Tensor, right_BD: Tensor) -> Tensor:
        if left_BD.shape != right_BD.shape or left_BD.ndim != 2:
            raise ValueError(
                f"{name} expects two (pairs, width) tensors of equal shape, got {tuple(left_BD.shape)} and "
                f"{tuple(right_BD.shape)}. Pool several positives per anchor before this call."
            )
        with torch.autocast(left_BD.device.type, enabled=False):
            # one gather per view keeps the row order of a single process, for losses that depend on it
            lefts_CD, rights_CD = (gather_rows(at_least_float32(view))[0] for view in (left_BD, right_BD))
            rows = torch.cat([lefts_CD, rights_CD])
            labels = torch.arange(len(lefts_CD), device=rows.device).repeat(2)
            return loss_function(rows, labels, None if select is None else select(rows, labels))

    return loss


def _build(kind: str, names: Mapping[str, Any], base: type, name: str, options: Mapping[str, Any]) -> torch.nn.Module:
    """Create an instance of the loss class or miner class ``name``.

    Raises:
        ValueError: If there is no such class for pairs, or if it does not accept these options.
    """
    if name in UNFIT:
        raise ValueError(f"{kind} {name} cannot be used on pairs: it {UNFIT[name]}. Choose another {kind}.")
    fit: dict[str, Any] = {
        key: one for key, one in names.items() if inspect.isclass(one) and issubclass(one, base) and key not in UNFIT
    }
    if name not in fit:
        close = difflib.get_close_matches(name, fit, n=3)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(sorted(fit))}."
        raise ValueError(f"pytorch-metric-learning has no {kind} {name!r} for pairs. {hint}")
    try:
        built: torch.nn.Module = fit[name](**options)
    except TypeError as error:
        raise ValueError(f"{kind} {name} does not accept the options {dict(options)}: {error}.") from error
    return built
