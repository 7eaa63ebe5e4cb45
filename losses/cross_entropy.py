"""Cross entropy of tokens: masked language modelling and sequence-to-sequence training.

Shape letters: M predicted tokens, padding left out; V words. A mean over tokens has to be taken over all ranks: see
`losses.gather.global_mean`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.precision import at_least_float32


def masked_lm_sum(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Sum over M predicted tokens of -log softmax(logits over V words)[label], in float32.

    Without tokens, or when every label is -100, it is 0 and still has a gradient path.
    """
    return _cross_entropy(logits_MV, labels_M, "sum")


def token_losses(logits_MV: Tensor, targets_M: Tensor) -> Tensor:
    """(M,) -log softmax(logits)[target] of a text's tokens, its end included, in float32 (float64 stays)."""
    return _cross_entropy(logits_MV, targets_M, "none")


def _cross_entropy(logits_MV: Tensor, labels_M: Tensor, reduction: str) -> Tensor:
    with torch.autocast(logits_MV.device.type, enabled=False):
        return F.cross_entropy(at_least_float32(logits_MV), labels_M, reduction=reduction)
