"""Cross-entropy over tokens, for masked language modeling and sequence-to-sequence training.

Shape letters: M predicted tokens without padding, V vocabulary size. A mean over tokens must be computed over all
ranks, see `losses.gather.global_mean`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.precision import at_least_float32


def masked_lm_sum(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Return the sum of -log softmax(logits)[label] over M predicted tokens, in float32.

    If there are no tokens, or if every label is -100, the sum is 0 and still has a gradient path.
    """
    return _cross_entropy(logits_MV, labels_M, "sum")


def token_losses(logits_MV: Tensor, targets_M: Tensor) -> Tensor:
    """Return -log softmax(logits)[target] of M target tokens, (M,), in float32 (float64 inputs stay float64)."""
    return _cross_entropy(logits_MV, targets_M, "none")


def _cross_entropy(logits_MV: Tensor, labels_M: Tensor, reduction: str) -> Tensor:
    with torch.autocast(logits_MV.device.type, enabled=False):
        return F.cross_entropy(at_least_float32(logits_MV), labels_M, reduction=reduction)
