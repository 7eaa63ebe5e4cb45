"""SBERT's objectives on pairs (Reimers and Gurevych, 2019, section 3): the cosine of two sentences is to be their
score, or u, v and |u - v| are to tell their relation.

Shape letters: B pairs on this rank, D embedding width, C classes.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Regression(NamedTuple):
    """Scalars whose mean over ranks is the value of the global batch, of which every rank has equally many pairs."""

    loss: Tensor
    cosine: Tensor  # the mean of the cosines; detached


def cosine_regression(left_BD: Tensor, right_BD: Tensor, scores_B: Tensor) -> Regression:
    """Mean of (cos(left, right) - score) squared; computed in float32 (float64 stays).

    Raises:
        ValueError: the shapes do not go together, or there is no pair.
    """
    if left_BD.shape != right_BD.shape or left_BD.ndim != 2 or scores_B.shape != left_BD.shape[:1] or not len(left_BD):
        raise ValueError(
            "cosine_regression needs two (pairs, width) tensors of one shape and (pairs,) scores, at least one, got "
            f"{tuple(left_BD.shape)}, {tuple(right_BD.shape)} and {tuple(scores_B.shape)}."
        )
    with torch.autocast(left_BD.device.type, enabled=False):
        dtype = torch.promote_types(left_BD.dtype, torch.float32)
        cosine_B = F.cosine_similarity(left_BD.to(dtype), right_BD.to(dtype))
        return Regression(F.mse_loss(cosine_B, scores_B.to(dtype)), cosine_B.detach().mean())


class Classified(NamedTuple):
    """Scalars whose mean over ranks is the value of the global batch, of which every rank has equally many pairs."""

    loss: Tensor
    accuracy: Tensor  # share of pairs whose own class has the largest logit; detached


def pair_softmax(left_BD: Tensor, right_BD: Tensor, labels_B: Tensor, weight: Tensor, bias: Tensor) -> Classified:
    """Mean cross-entropy of ``weight`` (C, 3D) [u, v, |u - v|] + ``bias`` (C,); in float32 (float64 stays).

    Raises:
        ValueError: the shapes do not go together, or there is no pair.
    """
    features = (len(left_BD), 3 * left_BD.shape[-1])
    if left_BD.shape != right_BD.shape or labels_B.shape != features[:1] or weight.shape[1:] != features[1:]:
        raise ValueError(
            "pair_softmax needs two (pairs, width) tensors of one shape, (pairs,) labels and (classes, 3 * width) "
            f"weights, got {tuple(left_BD.shape)}, {tuple(right_BD.shape)}, {tuple(labels_B.shape)} and "
            f"{tuple(weight.shape)}."
        )
    if not len(left_BD):
        raise ValueError("pair_softmax needs at least one pair.")
    with torch.autocast(left_BD.device.type, enabled=False):
        dtype = torch.promote_types(left_BD.dtype, torch.float32)
        left_BD, right_BD = left_BD.to(dtype), right_BD.to(dtype)
        features_B3D = torch.cat([left_BD, right_BD, (left_BD - right_BD).abs()], dim=1)
        logits_BC = F.linear(features_B3D, weight.to(dtype), bias.to(dtype))
        accuracy = (logits_BC.detach().argmax(1) == labels_B).float().mean()
        return Classified(F.cross_entropy(logits_BC, labels_B), accuracy)
