"""SBERT's losses for sentence pairs with a score or a class (Reimers and Gurevych, 2019, section 3).

The cosine of two sentences is regressed on their score, or their relation is classified from u, v, and |u - v|.

Shape letters: B pairs on this rank, D embedding width, C classes.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.cosent import check_pairs
from contrastive_encoders.losses.precision import at_least_float32


class Regression(NamedTuple):
    """Loss and mean cosine of this rank, as scalars; their means over all ranks are the values for the global batch.

    Every rank has equally many pairs.
    """

    loss: Tensor
    cosine: Tensor  # mean cosine; detached


def cosine_regression(left_BD: Tensor, right_BD: Tensor, scores_B: Tensor) -> Regression:
    """Compute the mean of (cos(left, right) - score)^2, in float32 (float64 inputs stay float64).

    Raises:
        ValueError: If the shapes do not match, or if the batch is empty.
    """
    check_pairs("cosine_regression", left_BD, right_BD, scores_B)
    with torch.autocast(left_BD.device.type, enabled=False):
        cosine_B = F.cosine_similarity(at_least_float32(left_BD), at_least_float32(right_BD))
        return Regression(F.mse_loss(cosine_B, scores_B.to(cosine_B.dtype)), cosine_B.detach().mean())


class Classified(NamedTuple):
    """Loss and accuracy of this rank, as scalars; their means over all ranks are the values for the global batch.

    Every rank has equally many pairs.
    """

    loss: Tensor
    accuracy: Tensor  # fraction of pairs whose class has the largest logit; detached


def pair_softmax(left_BD: Tensor, right_BD: Tensor, labels_B: Tensor, weight: Tensor, bias: Tensor) -> Classified:
    """Compute the mean cross-entropy of the logits ``weight`` @ [u, v, |u - v|] + ``bias``, in float32.

    ``weight`` is (C, 3D) and ``bias`` is (C,). float64 stays.
    """
    with torch.autocast(left_BD.device.type, enabled=False):
        left_BD, right_BD = at_least_float32(left_BD), at_least_float32(right_BD)
        features_B3D = torch.cat([left_BD, right_BD, (left_BD - right_BD).abs()], dim=1)
        logits_BC = F.linear(features_B3D, weight.to(left_BD.dtype), bias.to(left_BD.dtype))
        accuracy = (logits_BC.detach().argmax(1) == labels_B).float().mean()
        return Classified(F.cross_entropy(logits_BC, labels_B), accuracy)
