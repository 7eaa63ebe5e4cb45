"""Diagnostics of a batch of embeddings: alignment, uniformity, and effective rank.

They have no gradients, and describe the rows that are passed: the functions gather nothing from other ranks.

Shape letters: B pairs, N rows, D embedding width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_ROWS = 1024


def alignment(left_BD: Tensor, right_BD: Tensor) -> Tensor:
    """Return the mean squared distance between the normalized embeddings of the two texts of a pair (Wang & Isola 2020,
    alpha = 2).

    Lower is better.
    """
    return (F.normalize(left_BD, dim=-1) - F.normalize(right_BD, dim=-1)).square().sum(-1).mean()


def uniformity(rows_ND: Tensor) -> Tensor:
    """Return log(mean(exp(-2 d^2))) over all pairs of normalized rows (Wang & Isola 2020, eq. 2 with t = 2).

    d is the distance of rows i != j. The value is between -8 (opposite) and 0 (all in one point); lower is better. It
    is NaN for fewer than two rows.
    """
    rows_ND = F.normalize(rows_ND, dim=-1)
    total = rows_ND.new_zeros(())
    for first in range(0, len(rows_ND), BLOCK_ROWS):
        # d^2 = 2 - 2 cos on the unit sphere; only pairs above the diagonal, so that i != j
        cosine = rows_ND[first : first + BLOCK_ROWS] @ rows_ND[first:].T
        total += (4 * cosine - 4).exp().triu(1).sum()
    pairs = math.comb(len(rows_ND), 2)
    return (total / pairs).log() if pairs else total.new_full((), math.nan)


def effective_rank(rows_ND: Tensor) -> Tensor:
    """Return exp(entropy) of the singular values, scaled so that they sum to 1 (Roy & Vetterli 2007, eqs. 3 and 4).

    The rows are neither centered nor normalized. The value is between 1 and min(N, D), or NaN if a row is not finite.
    The singular values are computed from the smaller Gram matrix in float64, because squaring loses the small ones in
    float32.
    """
    rows_ND = rows_ND.double()
    if not rows_ND.isfinite().all():  # eigvalsh would raise, and the check of the loss has a better message
        return rows_ND.new_full((), torch.nan)
    gram = rows_ND @ rows_ND.T if len(rows_ND) < rows_ND.shape[1] else rows_ND.T @ rows_ND
    values = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    return torch.special.entr(values / values.sum()).sum().exp()


@torch.no_grad()
def contrast_diagnostics(left_BD: Tensor, right_BD: Tensor) -> dict[str, Tensor]:
    """Return the diagnostics of a batch of pairs as detached float32 scalars, for logging."""
    with torch.autocast(left_BD.device.type, enabled=False):
        left_BD, right_BD = left_BD.float(), right_BD.float()
        both_ND = torch.cat([left_BD, right_BD])
        return {
            "alignment": alignment(left_BD, right_BD),
            # each view separately: partners should be close, and must not lower the uniformity
            "uniformity": (uniformity(left_BD) + uniformity(right_BD)) / 2,
            "embedding_norm": both_ND.norm(dim=-1).mean(),
            "effective_rank": effective_rank(both_ND).float(),
        }
