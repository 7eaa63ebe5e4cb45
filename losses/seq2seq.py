"""Teacher forcing: cross entropy of the tokens of a text that a decoder is to write.

Shape letters: M target tokens, end of sequence included, padding left out; V words.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def token_losses(logits_MV: Tensor, targets_M: Tensor) -> Tensor:
    """(M,) -log softmax(logits)[target], in float32 (float64 stays).

    One each, because a mean over tokens has to be taken over all ranks: see `losses.gather.global_mean`.

    Raises:
        ValueError: the shapes do not go together.
    """
    if logits_MV.ndim != 2 or targets_M.shape != logits_MV.shape[:1]:
        raise ValueError(
            f"token_losses needs (tokens, words) logits and (tokens,) targets, got {tuple(logits_MV.shape)} and "
            f"{tuple(targets_M.shape)}. Leave padding out before calling it."
        )
    with torch.autocast(logits_MV.device.type, enabled=False):
        at_least_float32 = torch.promote_types(logits_MV.dtype, torch.float32)
        return F.cross_entropy(logits_MV.to(at_least_float32), targets_M, reduction="none")
