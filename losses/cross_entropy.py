"""Cross entropy of tokens: masked language modelling and sequence-to-sequence training.

Shape letters: M predicted tokens, padding left out; V words. A mean over tokens has to be taken over all ranks: see
`losses.gather.global_mean`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def masked_lm_sum(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Sum over M predicted tokens of -log softmax(logits over V words)[label], in float32.

    Without tokens, or when every label is -100, it is 0 and still has a gradient path.
    """
    _check(logits_MV, labels_M, "masked_lm_sum", "labels", "Select the predicted positions before calling it.")
    return _cross_entropy(logits_MV, labels_M, "sum")


def token_losses(logits_MV: Tensor, targets_M: Tensor) -> Tensor:
    """(M,) -log softmax(logits)[target] of a text's tokens, its end included, in float32 (float64 stays).

    Raises:
        ValueError: the shapes do not go together.
    """
    _check(logits_MV, targets_M, "token_losses", "targets", "Leave padding out before calling it.")
    return _cross_entropy(logits_MV, targets_M, "none")


def _cross_entropy(logits_MV: Tensor, labels_M: Tensor, reduction: str) -> Tensor:
    with torch.autocast(logits_MV.device.type, enabled=False):
        at_least_float32 = torch.promote_types(logits_MV.dtype, torch.float32)
        return F.cross_entropy(logits_MV.to(at_least_float32), labels_M, reduction=reduction)


def _check(logits_MV: Tensor, labels_M: Tensor, loss: str, name: str, advice: str) -> None:
    if logits_MV.ndim != 2 or labels_M.shape != logits_MV.shape[:1]:
        raise ValueError(
            f"{loss} needs (tokens, words) logits and (tokens,) {name}, got {tuple(logits_MV.shape)} and "
            f"{tuple(labels_M.shape)}. {advice}"
        )
