"""Diagnostics of a batch of embeddings: alignment, uniformity and effective rank.

Shape letters: B pairs, N rows, D embedding width. No gradients, nothing is gathered: these describe one rank's rows.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_ROWS = 1024


def alignment(left_BD: Tensor, right_BD: Tensor) -> Tensor:
    """Mean squared distance of the partners on the unit sphere (Wang & Isola 2020, alpha = 2); less is better."""
    return (F.normalize(left_BD, dim=-1) - F.normalize(right_BD, dim=-1)).square().sum(-1).mean()


def uniformity(rows_ND: Tensor) -> Tensor:
    """Log of the mean of exp(-2 d^2) over pairs i != j on the unit sphere (Wang & Isola 2020, eq. 2 with t = 2).

    Between -8 (opposite) and 0 (all in one point); less is better. NaN for fewer than two rows: there is no pair.
    """
    rows_ND = F.normalize(rows_ND, dim=-1)
    total = rows_ND.new_zeros(())
    for first in range(0, len(rows_ND), BLOCK_ROWS):
        # d^2 = 2 - 2 cos on the unit sphere; only pairs above the diagonal, so i = j never enters
        cosine = rows_ND[first : first + BLOCK_ROWS] @ rows_ND[first:].T
        total += (4 * cosine - 4).exp().triu(1).sum()
    pairs = math.comb(len(rows_ND), 2)
    return (total / pairs).log() if pairs else total.new_full((), math.nan)


def effective_rank(rows_ND: Tensor) -> Tensor:
    """exp of the entropy of the singular values, scaled to sum 1 (Roy & Vetterli 2007, eqs. 3 and 4).

    Of the rows as they are, neither centred nor normalised; between 1 and min(N, D). The singular values come from the
    smaller Gram matrix, in float64: squaring would drown the small ones in float32. NaN where a row is not finite.
    """
    rows_ND = rows_ND.double()
    if not rows_ND.isfinite().all():  # eigvalsh would raise; whoever watches the loss has the better message
        return rows_ND.new_full((), torch.nan)
    gram = rows_ND @ rows_ND.T if len(rows_ND) < rows_ND.shape[1] else rows_ND.T @ rows_ND
    values = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    return torch.special.entr(values / values.sum()).sum().exp()


@torch.no_grad()
def contrast_diagnostics(left_BD: Tensor, right_BD: Tensor) -> dict[str, Tensor]:
    """Detached float32 scalars of one batch of pairs, to log now and then."""
    with torch.autocast(left_BD.device.type, enabled=False):
        left_BD, right_BD = left_BD.float(), right_BD.float()
        both_ND = torch.cat([left_BD, right_BD])
        return {
            "alignment": alignment(left_BD, right_BD),
            # each view on its own: a pair is meant to be near, so it must not count as crowding
            "uniformity": (uniformity(left_BD) + uniformity(right_BD)) / 2,
            "embedding_norm": both_ND.norm(dim=-1).mean(),
            "effective_rank": effective_rank(both_ND).float(),
        }
