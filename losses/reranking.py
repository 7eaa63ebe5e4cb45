"""Losses of a cross-encoder, which reads a query together with a document and gives the pair one logit.

Shape letters: P pairs, B lists on this rank, L documents of a list.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def binary_relevance(logits_P: Tensor, targets_P: Tensor) -> Tensor:
    """Return the mean cross-entropy of each pair's relevance, a target from 0 to 1, in float32 (float64 stays).

    It is the binary loss of Nogueira and Cho (2019). Every rank has equally many pairs, so the mean over ranks is that
    of all pairs.

    Raises:
        ValueError: the shapes do not go together, or there is no pair.
    """
    if logits_P.ndim != 1 or logits_P.shape != targets_P.shape or not len(logits_P):
        raise ValueError(
            f"binary_relevance needs (pairs,) logits and as many targets, at least one, got {tuple(logits_P.shape)} "
            f"and {tuple(targets_P.shape)}."
        )
    with torch.autocast(logits_P.device.type, enabled=False):
        logits_P = _widened(logits_P)
        return F.binary_cross_entropy_with_logits(logits_P, targets_P.to(logits_P.dtype))


def listwise(logits_BL: Tensor, labels_BL: Tensor) -> Tensor:
    """Return the mean over lists of the cross-entropy between softmax(labels) and softmax(logits), in float32 (float64
    stays): ListNet with its top-one probabilities (Cao et al., ICML 2007).

    Every rank has equally many lists, so the mean over ranks is that of all lists.

    Raises:
        ValueError: the shapes do not go together, or there is nothing to rank.
    """
    if logits_BL.ndim != 2 or logits_BL.shape != labels_BL.shape or not len(logits_BL) or logits_BL.shape[1] < 2:
        raise ValueError(
            f"listwise needs (lists, documents) logits and as many labels, of two documents or more, got "
            f"{tuple(logits_BL.shape)} and {tuple(labels_BL.shape)}."
        )
    with torch.autocast(logits_BL.device.type, enabled=False):
        logits_BL = _widened(logits_BL)
        return F.cross_entropy(logits_BL, labels_BL.to(logits_BL.dtype).softmax(dim=1))


def _widened(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
