"""Self-debiasing: tokens that a counter prompt finds likelier than the prompt itself become rare."""

import torch
from torch import Tensor

# Axes: R rows (one per sample), C counter prompts (filled up to the most that a row has), V vocabulary


def self_debias(
    logits_RV: Tensor, counters_RCV: Tensor, present_RC: Tensor, decay_R: Tensor, epsilon_R: Tensor
) -> Tensor:
    """log p* (R, V), float32 (float64 where the logits are).

    p*(x) = p(x) * max(exp(-decay * d(x)), epsilon) / sum, with d(x) = max(0, max over counters p_b(x) - p(x)):
    Schick and Schütze 2021, "Generating Datasets with Pretrained Language Models", equations 1 to 3; their published
    data was made with the floor epsilon = 0.01, which is not in the paper (epsilon = 0 is the paper). Probabilities
    are over the full vocabulary, before temperature, top-k and top-p.

    Args:
        logits_RV: of the prompts; -inf bans a token, and must then stand in the counters' logits too.
        counters_RCV: of the counter prompts after the same continuation; C may be 0.
        present_RC: bool, False where a row has fewer counter prompts.
        decay_R: lambda >= 0.
        epsilon_R: 0..1.
    """
    wide = torch.promote_types(logits_RV.dtype, torch.float32)
    log_p_RV = torch.log_softmax(logits_RV, dim=-1, dtype=wide)
    if not counters_RCV.shape[1]:
        return log_p_RV
    p_b_RCV = torch.softmax(counters_RCV, dim=-1, dtype=wide).mul_(present_RC[:, :, None])
    excess_RV = p_b_RCV.amax(dim=1).sub_(log_p_RV.exp()).clamp_(min=0)
    # In logarithms a strong decay does not underflow to a probability of zero
    floor_R1 = epsilon_R.to(wide).log()[:, None]
    log_factor_RV = torch.maximum(excess_RV.mul_(-decay_R.to(wide)[:, None]), floor_R1)
    return torch.log_softmax(log_p_RV + log_factor_RV, dim=-1)
