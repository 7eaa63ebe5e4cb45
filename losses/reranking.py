"""Losses for a cross-encoder, which returns one logit for each query-document pair.

Shape letters: P pairs, B lists on this rank, L documents of a list.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.precision import at_least_float32


def binary_relevance(logits_P: Tensor, targets_P: Tensor) -> Tensor:
    """Compute the mean binary cross-entropy of logits and relevance targets from 0 to 1, in float32 (float64 inputs
    stay float64).

    It is the binary loss of Nogueira and Cho (2019). Every rank has equally many pairs, so that the mean over ranks is
    the mean over all pairs.
    """
    with torch.autocast(logits_P.device.type, enabled=False):
        logits_P = at_least_float32(logits_P)
        return F.binary_cross_entropy_with_logits(logits_P, targets_P.to(logits_P.dtype))


def listwise(logits_BL: Tensor, labels_BL: Tensor) -> Tensor:
    """Compute the cross-entropy of softmax(logits) and softmax(labels) of each list, and its mean over lists, in
    float32 (float64 inputs stay float64).

    This is ListNet with top-one probabilities (Cao et al., ICML 2007). Every rank has equally many lists, so that the
    mean over ranks is the mean over all lists.
    """
    with torch.autocast(logits_BL.device.type, enabled=False):
        logits_BL = at_least_float32(logits_BL)
        return F.cross_entropy(logits_BL, labels_BL.to(logits_BL.dtype).softmax(dim=1))
