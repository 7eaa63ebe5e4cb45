"""Matryoshka embeddings (Kusupati et al., NeurIPS 2022).

The loss of a batch is summed over prefixes of its embeddings, so that each prefix can be used as an embedding.

Shape letters: B texts, D width.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from contrastive_encoders.core import InputError

log = logging.getLogger(__name__)


class Prefix(NamedTuple):
    size: int
    weight: float


def prefixes(sizes: Sequence[int] | None, weights: Sequence[float] | None, width: int) -> list[Prefix]:
    """Return the Matryoshka prefixes with these sizes and weights, from longest to shortest. The default weight is 1.

    If ``sizes`` is None, return an empty list.

    Raises:
        InputError: If a size is invalid for embeddings of ``width`` dimensions, or if the numbers of weights and sizes
            differ.
    """
    if sizes is None:
        if weights is not None:
            raise InputError(
                key="model.matryoshka_weights",
                value=list(weights),
                expected="null if there are no sizes",
                hint="To use weights, set model.matryoshka.",
            )
        return []
    if not sizes or len(set(sizes)) < len(sizes) or not all(1 <= size <= width for size in sizes):
        raise InputError(
            key="model.matryoshka",
            value=list(sizes),
            expected=f"different sizes from 1 to {width}, the embedding dimension, such as "
            f"[{width},{max(1, width // 2)},{max(1, width // 4)}]",
        )
    weights = [1.0] * len(sizes) if weights is None else weights
    if len(weights) != len(sizes) or min(weights) <= 0:
        raise InputError(
            key="model.matryoshka_weights",
            value=list(weights),
            expected=f"a number above 0 for each of the {len(sizes)} sizes",
        )
    if width not in sizes:
        log.warning(
            "model.matryoshka=%s: the loss does not cover the full embeddings of %d dimensions. Add %d to train them.",
            list(sizes),
            width,
            width,
        )
    return sorted(map(Prefix, sizes, weights), reverse=True)


def over_prefixes(loss: Callable[..., Any], chosen: Sequence[Prefix], *views: Tensor) -> tuple[Any, dict[str, Tensor]]:
    """Compute a loss on all Matryoshka prefixes of the embeddings of each view, (B, D).

    Returns:
        The named tuple that ``loss`` returns for the longest prefix, with the weighted sum over all prefixes as its
        ``loss``; and the loss of each prefix by name. If there are no prefixes, the return value of ``loss``
        for the full views, and no further losses.
    """
    if not chosen:
        return loss(*views), {}
    found = [loss(*(view[:, : one.size] for view in views)) for one in chosen]
    total = sum((one.weight * part.loss for one, part in zip(chosen, found, strict=True)), start=views[0].new_zeros(()))
    each = {f"loss@{one.size}": part.loss.detach() for one, part in zip(chosen, found, strict=True)}
    return found[0]._replace(loss=total), each
