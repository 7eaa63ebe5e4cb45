"""Masked language modelling: cross entropy on the predicted positions only."""

import torch
import torch.nn.functional as F
from torch import Tensor


def masked_lm_sum(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Sum over M predicted tokens of -log softmax(logits over V words)[label], in float32.

    A sum, because a mean over tokens has to be taken over all ranks: see `losses.gather.global_mean`. Without tokens,
    or when every label is -100, it is 0 and still has a gradient path.
    """
    if logits_MV.ndim != 2 or labels_M.shape != logits_MV.shape[:1]:
        raise ValueError(
            f"masked_lm_sum needs (tokens, words) logits and (tokens,) labels, got {tuple(logits_MV.shape)} and "
            f"{tuple(labels_M.shape)}. Select the predicted positions before calling it."
        )
    with torch.autocast(logits_MV.device.type, enabled=False):
        at_least_float32 = torch.promote_types(logits_MV.dtype, torch.float32)
        return F.cross_entropy(logits_MV.to(at_least_float32), labels_M, reduction="sum")
