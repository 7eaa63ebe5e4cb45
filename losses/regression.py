"""Cosine regression: the cosine of two sentences is to be their score (Reimers and Gurevych, 2019, section 3).

Shape letters: B pairs on this rank, D embedding width.
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
