"""Token sampling: self-debiasing, top-k, top-p, and reproducible random numbers.

The published order (that of transformers) is temperature, top-k, and then top-p over the renormalized result of top-k.
A token is found by its position in the cumulative distribution over token ids, not over ranks. Two tokens of nearly
equal probability may change ranks if the shape of the batch changes the last bit of a logit, but their ids stay the
same.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Axes: R rows (one per sample), V vocabulary, C counter prompts (maximum over the rows), K kept candidates, S samples,
# P positions
FIRST_TOP_P_WIDTH = 1024  # tokens examined first if only top-p restricts; more if they do not cover its mass
TOP_K_MARGIN = 11  # tokens examined beyond top-k, for ties with the k-th


class TokenCandidates(NamedTuple):
    """Tokens that may be drawn, in descending order of ids, with their cumulative probabilities."""

    ids_RK: Tensor  # int64
    cumulative_RK: Tensor  # float64, not normalized; tokens that may not be drawn add nothing


def candidates(
    log_p_RV: Tensor, *, top_k: int | None = None, top_p: float | None = None, temperature: float = 1.0
) -> TokenCandidates:
    """Return the tokens that may be drawn under top-k and top-p, and their cumulative probabilities.

    ``None`` or 0 disables ``top_k``; ``None``, 0, or 1 disables ``top_p``. At least one token is always kept.
    """
    scores_RV = log_p_RV if temperature == 1 else log_p_RV / temperature
    vocabulary = scores_RV.shape[1]
    mass = top_p if top_p and top_p < 1 else None
    if not top_k and mass is None:
        ids_V = torch.arange(vocabulary - 1, -1, -1, device=scores_RV.device)
        return _weigh_by_id(scores_RV.flip(1), ids_V.expand_as(scores_RV), None)
    width = min(vocabulary, top_k + TOP_K_MARGIN if top_k else FIRST_TOP_P_WIDTH)
    while True:
        values_RK, ids_RK = torch.topk(scores_RV, width, dim=1)
        ids_RK, by_id_RK = ids_RK.sort(dim=1, descending=True)
        values_RK = values_RK.gather(1, by_id_RK)
        ranked_RK, rank_RK = values_RK.sort(dim=1, descending=True, stable=True)  # ties: higher id first
        kept_RK = _top_k_mask(ranked_RK, top_k)
        if mass is not None:
            total_R1 = None if top_k else torch.logsumexp(scores_RV, dim=1, keepdim=True)
            kept_RK &= _top_p_mask(ranked_RK.masked_fill(~kept_RK, -torch.inf), total_R1, mass)
        # Tokens not examined are at most as likely as the last examined one, so they matter only if that one may be
        # drawn
        if width == vocabulary or not (kept_RK & (ranked_RK == ranked_RK[:, -1:])).any():
            return _weigh_by_id(values_RK, ids_RK, torch.empty_like(kept_RK).scatter_(1, rank_RK, kept_RK))
        width = min(vocabulary, 8 * width)


def pick(found: TokenCandidates, uniform_R: Tensor) -> Tensor:
    """Draw a token for each of R rows by inverse transform sampling, (R,). ``uniform_R`` is float64 in [0, 1).

    The result is -1 if the logits contain NaN. Raising an error here would make every step wait for the device.
    """
    total_R = found.cumulative_RK[:, -1]
    target_R = torch.minimum(uniform_R * total_R, torch.nextafter(total_R, torch.zeros_like(total_R)))
    place_R = torch.searchsorted(found.cumulative_RK.contiguous(), target_R[:, None], right=True)
    ids_R = found.ids_RK.gather(1, place_R.clamp_(max=found.ids_RK.shape[1] - 1))[:, 0]
    return ids_R.masked_fill(total_R.isnan(), -1)


def _top_k_mask(ranked_RK: Tensor, top_k: int | None) -> Tensor:
    """Return a mask of the tokens that are at least as likely as the k-th likeliest token, as in transformers."""
    if not top_k:
        return torch.ones_like(ranked_RK, dtype=torch.bool)
    return ranked_RK >= ranked_RK[:, min(top_k, ranked_RK.shape[1]) - 1, None]


def _top_p_mask(ranked_RK: Tensor, total_R1: Tensor | None, top_p: float) -> Tensor:
    """Return a mask of the tokens that top-p sampling keeps: tokens for which all likelier tokens together have a
    probability below ``top_p``.

    ``total_R1`` is the logarithm of the total mass; ``None`` means the mass of the row.
    """
    total_R1 = torch.logsumexp(ranked_RK, dim=1, keepdim=True) if total_R1 is None else total_R1
    p_RK = (ranked_RK - total_R1).double().exp()
    return p_RK.cumsum(dim=1) - p_RK < top_p


def _weigh_by_id(values_RK: Tensor, ids_RK: Tensor, kept_RK: Tensor | None) -> TokenCandidates:
    weights_RK = (values_RK - values_RK.amax(dim=1, keepdim=True)).double().exp()
    if kept_RK is not None:
        weights_RK = weights_RK * kept_RK
    return TokenCandidates(ids_RK, weights_RK.cumsum(dim=1))


# ------------------------------------------------------------------------------- random numbers


def digest(seed: int, key: Sequence[int | str]) -> int:
    """Return a 64-bit hash of the seed and the key of a prompt."""
    return int.from_bytes(hashlib.blake2b(json.dumps([seed, *key]).encode(), digest_size=8).digest(), "little")


def uniforms(digest_of_prompt: int, samples: range, positions: int) -> np.ndarray:
    """Return reproducible random numbers in [0, 1) for S samples and P token positions, (S, P) float64.

    The number depends only on the digest of the prompt, the sample, and the position.
    """
    drawn = [np.random.default_rng((digest_of_prompt, sample)).random(positions) for sample in samples]
    return np.array(drawn).reshape(len(samples), positions)


# ------------------------------------------------------------------------------- self-debiasing


def self_debias(
    logits_RV: Tensor, counters_RCV: Tensor, present_RC: Tensor, decay_R: Tensor, epsilon_R: Tensor
) -> Tensor:
    """Return the self-debiased log-probabilities log p* of R rows, (R, V) float32 (float64 if the logits are).

    p*(x) = p(x) * max(exp(-decay * d(x)), epsilon) / sum, with d(x) = max(0, max over counters p_b(x) - p(x)):
    Schick and Schütze 2021, "Generating Datasets with Pretrained Language Models", equations 1 to 3. Their published
    data was made with the floor epsilon = 0.01, which is not in the paper (epsilon = 0 corresponds to the paper).
    Probabilities are over the full vocabulary, before temperature, top-k, and top-p.

    Args:
        logits_RV: Logits of the prompts. -inf bans a token, and must then also be in the logits of the counter prompts.
        counters_RCV: Logits of the counter prompts after the same continuation. C may be 0.
        present_RC: bool, False if a row has fewer counter prompts.
        decay_R: lambda >= 0.
        epsilon_R: Floor in 0..1.
    """
    wide = torch.promote_types(logits_RV.dtype, torch.float32)
    log_p_RV = torch.log_softmax(logits_RV, dim=-1, dtype=wide)
    if not counters_RCV.shape[1]:
        return log_p_RV
    p_b_RCV = torch.softmax(counters_RCV, dim=-1, dtype=wide).mul_(present_RC[:, :, None])
    excess_RV = p_b_RCV.amax(dim=1).sub_(log_p_RV.exp()).clamp_(min=0)
    # In log space, a strong decay does not underflow to a probability of zero
    floor_R1 = epsilon_R.to(wide).log()[:, None]
    log_factor_RV = torch.maximum(excess_RV.mul_(-decay_R.to(wide)[:, None]), floor_R1)
    return torch.log_softmax(log_p_RV + log_factor_RV, dim=-1)
