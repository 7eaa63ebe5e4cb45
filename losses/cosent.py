"""CoSENT loss (Huang et al., 2024): of any two text pairs, the pair with the higher score should have the higher
similarity.

Shape letters: B pairs on this rank, C pairs of all ranks, D embedding width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contrastive_encoders.losses.gather import gather_plain, gather_rows
from contrastive_encoders.losses.precision import at_least_float32


def cosent(left_BD: Tensor, right_BD: Tensor, scores_B: Tensor, *, temperature: float) -> Tensor:
    """Compute the CoSENT loss log(1 + sum of exp((cosine_k - cosine_i) / temperature)).

    The sum is over all pairs i and k, on any rank, for which pair i has the higher score. The result is equal on all
    ranks. It is computed in float32, or in float64 for float64 inputs.

    Raises:
        ValueError: If the shapes do not match, or if the batch is empty.
    """
    check_pairs("cosent", left_BD, right_BD, scores_B)
    with torch.autocast(left_BD.device.type, enabled=False):
        cosine_B = F.cosine_similarity(at_least_float32(left_BD), at_least_float32(right_BD))
        return ranking_loss(cosine_B, scores_B, temperature)


def ranking_loss(similarities_B: Tensor, scores_B: Tensor, temperature: float) -> Tensor:
    """Compute the CoSENT loss from given similarities of the pairs."""
    logits_C = gather_rows(similarities_B[:, None])[0].squeeze(1) / temperature
    scores_C = gather_plain(scores_B)
    wrong_CC = (logits_C - logits_C[:, None]).masked_fill(scores_C[:, None] <= scores_C, -torch.inf)
    return torch.cat([logits_C.new_zeros(1), wrong_CC.flatten()]).logsumexp(0)


def check_pairs(loss: str, left_BD: Tensor, right_BD: Tensor, scores_B: Tensor) -> None:
    if left_BD.shape != right_BD.shape or left_BD.ndim != 2 or scores_B.shape != left_BD.shape[:1] or not len(left_BD):
        raise ValueError(
            f"{loss} expects two (pairs, width) tensors of equal shape and (pairs,) scores with at least one pair, got "
            f"{tuple(left_BD.shape)}, {tuple(right_BD.shape)}, and {tuple(scores_B.shape)}."
        )
