"""Count the negatives in the first batches before training, and reject data from which the loss cannot learn."""

import logging
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.optimizers import planned_steps

MAX_ROWS, MAX_BATCHES = 8_192, 128  # counted at most, if one of them has a gradient
MIN_BATCHES = 1_000  # without a gradient, or an epoch if it has more, before data are rejected
MAX_SUGGESTED = 64  # maximum batch size that is suggested

log = logging.getLogger(__name__)


class Counts(NamedTuple):
    """Number of negatives per anchor over several batches: mean, minimum, and maximum."""

    mean: float
    minimum: int
    maximum: int

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return f"{self.maximum:,}"
        return f"{self.mean:,.1f} ({self.minimum:,} to {self.maximum:,})"


def count_usable_negatives(model: Any, data: Any, loader: Any, trainer: Any, name: str) -> dict[str, Counts]:
    """Count the negatives that the loss uses for each anchor in the first batches. Return the counts for each data
    source of a mixture, or under the key "".

    The result is empty if the loss has no negatives. A warning gives the number of batches without negatives. The
    global batches of all ranks are counted, so the counts are identical on every rank.

    Args:
        name: name of the data.

    Raises:
        InputError: no term of the loss can have a gradient in any batch.
    """
    steps = planned_steps(trainer.max_steps, trainer.max_epochs, len(loader)) * trainer.accumulate_grad_batches
    found, batches, rows, empty, learns = dict[str, list[torch.Tensor]](), 0, 0, 0, False
    for batch in islice(loader.global_batches(), min(steps, max(MIN_BATCHES, len(loader)))):
        batch = model.on_before_batch_transfer(batch, 0)
        counts = model.count_negatives(batch)
        can_learn = model.can_learn(batch, counts)
        batches, rows, learns = batches + 1, rows + len(batch.rows), learns or can_learn
        empty += not can_learn or (counts is not None and not counts.any())
        if counts is not None:
            found.setdefault(batch.part if isinstance(batch.part, str) else "", []).append(counts)
        if learns and (rows >= MAX_ROWS or batches >= MAX_BATCHES):
            break
    if not learns:
        raise _no_gradient(model, data, batches, trainer.world_size, name)
    if empty == batches:
        log.warning("No batch has %s, so only other terms of the loss are trained. %s", model.needs, model.remedy)
    elif empty:
        log.warning(
            "%d of the first %d batches have no %s. Remove duplicate rows, or increase batch_size.",
            *(empty, batches, model.needs),
        )
    return {part: _counts(torch.cat(several).double()) for part, several in found.items()}


def _counts(counts: torch.Tensor) -> Counts:
    return Counts(float(counts.mean()), int(counts.min()), int(counts.max()))


def _no_gradient(model: Any, data: Any, batches: int, processes: int, name: str) -> InputError:
    """Return the error for data in which the loss of every batch has a zero gradient. The hint suggests a larger batch
    size if the gradient would then be nonzero.
    """
    most = min(MAX_SUGGESTED, data.num_examples)
    size = most - most % processes
    if size > data.batch_size and hasattr(data, "batch"):
        batch = data.batch(0, np.arange(size))
        if model.can_learn(batch, model.count_negatives(batch)):
            return InputError(
                key="batch_size",
                value=data.batch_size,
                expected=f"batches with {model.needs}, but none of {batches:,} batches has any, so the loss has no "
                "gradient",
                hint=f"Set batch_size={size}.",
            )
    return InputError(
        location=name,
        expected=model.needs,
        value=f"none in {batches:,} batches of {data.batch_size:,}, so the loss has no gradient",
        hint=model.remedy,
    )
