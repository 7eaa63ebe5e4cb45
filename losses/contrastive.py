"""In-batch contrastive losses: symmetric NT-Xent and one-directional InfoNCE, which share a softmax implementation.

Shape letters: B pairs on this rank, R rows on this rank, C candidates of all ranks, D embedding width, G width of the
guide's embeddings, H hard negatives of an anchor, K rows of a block.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrastive_encoders.losses.duplicate_masking import (
    EqualTexts,
    answers_of_anchors,
    equal_views,
    known_pairs,
)
from contrastive_encoders.losses.gather import (
    as_sum_over_ranks,
    divide_gradient_by_world_size,
    gather_plain,
    gather_rows,
)
from contrastive_encoders.losses.precision import at_least_float32

Reduction = Literal["mean", "sum"]
Scale = Literal["exact", "per_rank"]

BLOCK_LOGITS = 2**22  # logits in memory at a time: 16 MiB in float32, and large enough for a matmul at full speed
NEVER_EXCLUDED = torch.iinfo(torch.int64).min  # a group without rows
TIE = 1e-6  # tolerance for equal cosines of a guide, because the order of float32 operations may differ


class ContrastiveOutput(NamedTuple):
    """Loss and metrics of this rank, as scalars; their means over all ranks are the values for the global batch."""

    loss: Tensor
    accuracy: Tensor  # fraction of rows whose partner is closer than any other candidate; detached
    excluded_negatives: Tensor | None  # fraction of the other candidates; None without a guide


class Guide(NamedTuple):
    """Embeddings from another encoder, the guide, by which false negatives are excluded (GISTEmbed, Solatorio 2024).

    A candidate is excluded from the negatives of a row if its cosine with the row exceeds the cosine of the row's
    partner minus the margin. A candidate that ties with the partner, such as the same text, is also excluded. The
    larger of the two margins applies.
    """

    views: Sequence[Tensor]  # (B, G) each, in the order of the views of the loss
    absolute_margin: float = 0.0  # margin in cosine
    relative_margin: float = 0.0  # margin as a fraction of the partner's cosine


class FalseNegativeMask(NamedTuple):
    """Mask of the candidates that are too similar to a row according to a guide's normalized embeddings."""

    rows_RG: Tensor
    candidates_CG: Tensor
    most_R: Tensor  # negatives have cosines below this value

    def mask(self, block: slice) -> Tensor:
        """Return the mask of C candidates for a block of K rows, (K, C) bool. It is true for a row's partner and for
        the row itself.
        """
        return self.rows_RG[block] @ self.candidates_CG.T >= self.most_R[block, None]


class Matching(NamedTuple):
    """Target candidate and excluded candidates of each row."""

    partner_R: Tensor  # int64 index of the target candidate
    row_group_R: Tensor | None = None  # int64; candidates of a row's group, except its partner, are excluded
    candidate_group_C: Tensor | None = None
    hard_RH: Tensor | None = None  # int64 indices of the row's hard negatives
    hard_logit: float = 0.0  # added to the logits of hard negatives
    hard_share: float = 0.0  # this multiple of the logits of hard negatives is added to them, without gradient
    nearness: FalseNegativeMask | None = None  # candidates that are too close, except the partner, are excluded
    equal: EqualTexts | None = None  # candidates with equal texts, except the partner, are excluded
    twin_R: Tensor | None = None  # int64 index of a copy of the partner's logit; counts in the loss, not in accuracy


class SoftmaxSums(NamedTuple):
    total: Tensor  # () sum of the losses of all rows
    correct_R: Tensor  # bool: the partner is closer than any other candidate
    near_R: Tensor  # int64: number of candidates that only the guide excludes


def _block_losses(logits_KC: Tensor, matching: Matching, block: slice) -> tuple[Tensor, Tensor, Tensor | int]:
    """Compute the losses of a block of rows. Replace the logits, in place, by the gradients with respect to them.

    The loss is softplus(logsumexp(others) - partner), which avoids the difference of nearly equal numbers if the
    partner has the largest logit.

    Returns:
        For each row: the loss, whether the partner had the largest logit, and the number of candidates that only the
        guide excludes.
    """
    partner_K1 = matching.partner_R[block, None]
    if matching.hard_RH is not None and (matching.hard_logit or matching.hard_share):
        hard_KH = matching.hard_RH[block]
        logits_KC.scatter_add_(1, hard_KH, logits_KC.gather(1, hard_KH) * matching.hard_share + matching.hard_logit)
    target_K = logits_KC.gather(1, partner_K1).squeeze(1)
    if matching.row_group_R is not None and matching.candidate_group_C is not None:
        logits_KC.masked_fill_(matching.row_group_R[block, None] == matching.candidate_group_C, -math.inf)
    if matching.equal is not None:
        logits_KC.masked_fill_(matching.equal.excluded(block), -math.inf)
    logits_KC.scatter_(1, partner_K1, -math.inf)
    if matching.twin_R is not None:
        logits_KC.scatter_(1, matching.twin_R[block, None], -math.inf)
    near_K: Tensor | int = 0
    if matching.nearness is not None:
        too_near_KC = matching.nearness.mask(block)
        near_K = (too_near_KC & (logits_KC > -math.inf)).sum(1)
        logits_KC.masked_fill_(too_near_KC, -math.inf)

    best_K = logits_KC.amax(1)
    correct_K = target_K > best_K  # a tie is not correct: collapsed embeddings have accuracy 0
    if matching.twin_R is not None:
        logits_KC.scatter_(1, matching.twin_R[block, None], target_K[:, None])
        best_K = torch.maximum(best_K, target_K)
    best_K = best_K.masked_fill(best_K == -math.inf, 0.0)  # no other candidate at all: the loss is 0
    sum_K = logits_KC.sub_(best_K[:, None]).exp_().sum(1)
    gap_K = best_K + sum_K.log() - target_K
    wrong_K = gap_K.sigmoid()
    # the sum contains exp(0) = 1 unless it is empty, so the clamp only prevents 0 / 0
    logits_KC.mul_((wrong_K / sum_K.clamp(min=1))[:, None])
    logits_KC.scatter_(1, partner_K1, -wrong_K[:, None])
    return F.softplus(gap_K), correct_K, near_K


class _SoftmaxOverCandidates(torch.autograd.Function):
    """Autograd function that sums the softmax losses of all rows, and computes them in blocks of rows.

    The gradient is computed together with a block's logits, so that nothing of size R x C is stored or recomputed.
    """

    @staticmethod
    def forward(
        ctx: Any, rows_RD: Tensor, candidates_CD: Tensor, matching: Matching, temperature: float, block_rows: int
    ) -> SoftmaxSums:
        wanted = any(ctx.needs_input_grad)
        grad_rows_RD = torch.empty_like(rows_RD) if wanted else None
        grad_candidates_CD = torch.zeros_like(candidates_CD) if wanted else None
        total = rows_RD.new_zeros(())
        correct_R = torch.empty(len(rows_RD), dtype=torch.bool, device=rows_RD.device)
        near_R = torch.empty(len(rows_RD), dtype=torch.int64, device=rows_RD.device)
        for first in range(0, len(rows_RD), block_rows):
            block = slice(first, first + block_rows)
            scaled_KD = rows_RD[block] / temperature
            logits_KC = scaled_KD @ candidates_CD.T
            losses_K, correct_R[block], near_R[block] = _block_losses(logits_KC, matching, block)
            total += losses_K.sum()
            if grad_rows_RD is not None and grad_candidates_CD is not None:
                torch.mm(logits_KC, candidates_CD, out=grad_rows_RD[block]).div_(temperature)
                grad_candidates_CD.addmm_(logits_KC.T, scaled_KD)
        if grad_rows_RD is not None and grad_candidates_CD is not None:
            ctx.save_for_backward(grad_rows_RD, grad_candidates_CD)
        ctx.mark_non_differentiable(correct_R, near_R)
        return SoftmaxSums(total, correct_R, near_R)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_rows_RD, grad_candidates_CD = ctx.saved_tensors
        return grad_total * grad_rows_RD, grad_total * grad_candidates_CD, None, None, None


def softmax_over_candidates(
    rows_RD: Tensor, candidates_CD: Tensor, matching: Matching, *, temperature: float, block_rows: int | None = None
) -> SoftmaxSums:
    """Return the sum over rows of -log softmax(rows @ candidates.T / temperature)[partner], and the rows whose partner
    is closest.

    Rows must be normalized and have the dtype of the computation. Memory beyond the gradients is ``block_rows`` x C.
    """
    block_rows = block_rows or max(1, BLOCK_LOGITS // len(candidates_CD))
    return SoftmaxSums(*_SoftmaxOverCandidates.apply(rows_RD, candidates_CD, matching, temperature, block_rows))


def nt_xent(
    left_BD: Tensor,
    right_BD: Tensor,
    *,
    temperature: float,
    guide: Guide | None = None,
    text_hashes: Sequence[Tensor] | None = None,
    reduction: Reduction = "mean",
    scale: Scale = "exact",
) -> ContrastiveOutput:
    """Compute symmetric NT-Xent (SimCLR, eq. 1): each of the 2B rows must find its partner among all other rows.

    Args:
        left_BD: Embeddings of the left texts.
        right_BD: Embeddings of the right texts.
        temperature: Temperature of the softmax.
        guide: Embeddings that filter false negatives.
        text_hashes: (B,) int64 hashes of the left texts and of the right texts. Texts with equal hashes on any rank
            are not negatives of each other (see `losses.duplicate_masking`).
        reduction: "sum" adds the losses of the 2B rows, as in DeCLUTR's eq. 2; "mean" averages them, as in its code.
        scale: "per_rank" divides the gradient, but not the value, by the world size, as the published runs did.
    """
    check_views("nt_xent", left=left_BD, right=right_BD)
    with torch.autocast(left_BD.device.type, enabled=False):
        rows_RD = stack_normalized(left_BD, right_BD)
        candidates_CD, start = gather_rows(rows_RD)
        candidate_C = torch.arange(len(candidates_CD), device=rows_RD.device)
        row_R = candidate_C[start : start + len(rows_RD)]
        # every row is a separate group, so that it is not its own negative
        partner_R = row_R.roll(len(left_BD))
        nearness = None if guide is None else _nearness(guide, guide.views, guide.views, partner_R)
        equal = None
        if text_hashes is not None:
            equal = equal_views(torch.cat([*text_hashes]), torch.cat([text_hashes[1], text_hashes[0]]))
        matching = Matching(partner_R, row_group_R=row_R, candidate_group_C=candidate_C, nearness=nearness, equal=equal)
        found = softmax_over_candidates(rows_RD, candidates_CD, matching, temperature=temperature)
        return reduce_sums(found, len(candidates_CD) - 2, reduction, scale, guide is not None)


def info_nce(
    anchors_BD: Tensor,
    positives_BD: Tensor,
    hard_negatives_ND: Tensor | None = None,
    *,
    temperature: float,
    hard_negative_weight: float = 0.0,
    hardness_strength: float = 0.0,
    groups: Tensor | None = None,
    guide: Guide | None = None,
    text_hashes: Sequence[Tensor] | None = None,
    accepted: Tensor | None = None,
    accepted_by_candidates: Tensor | None = None,
    reduction: Reduction = "mean",
    scale: Scale = "exact",
) -> ContrastiveOutput:
    """Compute InfoNCE: each anchor must find its positive among all positives and hard negatives (SimCSE, eq. 5).

    The candidates are those of all ranks.

    Args:
        anchors_BD: Embeddings of the anchors.
        positives_BD: Embeddings of the positives.
        hard_negatives_ND: Embeddings of hard negatives, equally many per anchor. Those of one anchor are consecutive.
        temperature: Temperature of the softmax.
        hard_negative_weight: Value added to the logits of an anchor's own hard negatives: with w, each counts e^w
            times.
        hardness_strength: This multiple of the cosine is added to the logits of an anchor's own hard negatives,
            without gradient (EmbeddingGemma, Schechter Vera et al., 2025).
        groups: (B,) int64 groups of anchors with the same meaning, such as pairs of one passage. Positives of the same
            group are not negatives. Hard negatives always count, because they contradict the entire group.
        guide: Embeddings that filter false negatives among positives and hard negatives.
        text_hashes: Hashes of the texts of anchors, positives, and hard negatives; equal texts are not negatives.
        accepted: (B, P) hashes of texts that are not negatives of an anchor, such as its other positives.
        accepted_by_candidates: (B, P) hashes of texts that are not negatives of a positive, if positives are queries.
        reduction: See `nt_xent`.
        scale: See `nt_xent`.
    """
    check_views("info_nce", anchors=anchors_BD, positives=positives_BD)
    each = 0 if hard_negatives_ND is None else hard_negatives_each(anchors_BD, hard_negatives_ND)
    equal = None
    if text_hashes is not None:
        anchor_hashes_B, *candidate_hashes = text_hashes
        known = known_pairs(anchor_hashes_B, candidate_hashes[0], accepted, accepted_by_candidates)
        equal = answers_of_anchors(anchor_hashes_B, gather_plain(torch.cat(candidate_hashes)), known)
    with torch.autocast(anchors_BD.device.type, enabled=False):
        rows_RD = stack_normalized(anchors_BD)
        candidates_CD, start = gather_rows(stack_normalized(positives_BD, hard_negatives_ND))
        row_R = torch.arange(len(rows_RD), device=rows_RD.device)
        partner_R, hard_RH = start + row_R, each * row_R[:, None] + torch.arange(each, device=rows_RD.device)
        matching = Matching(
            partner_R,
            row_group_R=groups,
            candidate_group_C=candidate_groups(groups, each),
            hard_RH=hard_RH + (start + len(rows_RD)) if each else None,
            hard_logit=hard_negative_weight,
            hard_share=hardness_strength * temperature,
            nearness=None if guide is None else _nearness(guide, guide.views[:1], guide.views[1:], partner_R),
            equal=equal,
        )
        found = softmax_over_candidates(rows_RD, candidates_CD, matching, temperature=temperature)
        return reduce_sums(found, len(candidates_CD) - 1, reduction, scale, guide is not None)


def candidate_groups(groups_B: Tensor | None, each: int) -> Tensor | None:
    """Return the group number of each candidate; rows of the same group are not negatives of each other. Positives have
    the group of their row, and hard negatives have no group.

    ``each`` is the number of hard negatives per row.
    """
    if groups_B is None:
        return None
    return gather_plain(torch.cat([groups_B, torch.full_like(groups_B, NEVER_EXCLUDED).repeat(each)]))


def _nearness(
    guide: Guide, rows: Sequence[Tensor], candidates: Sequence[Tensor], partner_R: Tensor
) -> FalseNegativeMask:
    return nearness_of(guide, stack_normalized(*rows), gather_plain(stack_normalized(*candidates)), partner_R)


def nearness_of(guide: Guide, rows_RG: Tensor, candidates_CG: Tensor, partner_R: Tensor) -> FalseNegativeMask:
    """Return the mask of false negatives that a guide determines by its normalized embeddings and its margins."""
    cosine_R = (rows_RG * candidates_CG[partner_R]).sum(-1)
    margin_R = torch.maximum(torch.full_like(cosine_R, guide.absolute_margin), guide.relative_margin * cosine_R.abs())
    return FalseNegativeMask(rows_RG, candidates_CG, cosine_R - margin_R - TIE)


def stack_normalized(*views: Tensor | None) -> Tensor:
    """Concatenate the views and L2-normalize their rows, in float32 (float64 inputs stay float64).

    bfloat16 keeps 8 bits of a cosine. With temperature 0.05, the rounding alone changes a logit by about 0.1.
    """
    return F.normalize(at_least_float32(torch.cat([view for view in views if view is not None])), dim=-1)


def reduce_sums(found: SoftmaxSums, others: int, reduction: Reduction, scale: Scale, guided: bool) -> ContrastiveOutput:
    """Convert sums over rows to the loss and the metrics. ``others`` is the maximum number of negatives of a row."""
    loss = found.total / len(found.correct_R) if reduction == "mean" else as_sum_over_ranks(found.total)
    if scale == "per_rank":
        loss = divide_gradient_by_world_size(loss)
    excluded = found.near_R.float().mean() / max(1, others) if guided else None
    return ContrastiveOutput(loss, found.correct_R.float().mean(), excluded)


def check_views(loss: str, **views: Tensor | None) -> None:
    shapes = {name: tuple(view.shape) for name, view in views.items() if view is not None}
    first = next(iter(shapes.values()))
    if len(set(shapes.values())) > 1 or len(first) != 2 or first[0] == 0:
        raise ValueError(
            f"{loss} expects (pairs, width) tensors of equal shape with at least one pair, got {shapes}. "
            "Pool several positives per anchor before this call."
        )


def hard_negatives_each(anchors_BD: Tensor, hard_negatives_ND: Tensor) -> int:
    """Return the number of hard negatives per anchor, which must be the same for all anchors.

    Raises:
        ValueError: If the anchors do not have equally many hard negatives, or if the widths differ.
    """
    each, rest = divmod(len(hard_negatives_ND), len(anchors_BD))
    if rest or not each or hard_negatives_ND.shape[1:] != anchors_BD.shape[1:]:
        raise ValueError(
            f"info_nce expects the same number of hard negatives for each anchor, got shape "
            f"{tuple(hard_negatives_ND.shape)} for anchors of shape {tuple(anchors_BD.shape)}."
        )
    return each
