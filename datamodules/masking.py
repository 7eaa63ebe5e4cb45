"""Masked language modelling: which tokens are predicted, and what stands in their place."""

import numpy as np

from contracts import IGNORED_LABEL, InputError


def mask_tokens(
    ids: np.ndarray,
    special: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    probability: float = 0.15,
) -> tuple[np.ndarray, np.ndarray]:
    """(n,) ids and (n,) bool flags of special tokens -> corrupted ids and labels, (n,) int64 each.

    Every other token is predicted with ``probability``, independently: 80 % of those become the mask, 10 % a token
    drawn uniformly from the whole vocabulary, 10 % stay (Devlin et al. 2019, section 3.1). ``labels`` hold the
    original id where a token is predicted, IGNORED_LABEL elsewhere.
    """
    check_probability(probability)
    ids = ids.astype(np.int64, copy=False)
    # Given that a number is below the probability, it is uniform there: it says the kind of corruption as well
    draws = rng.random(len(ids))
    draws[special] = 1.0
    masked = ids.copy()
    masked[draws < 0.8 * probability] = mask_id
    random = np.flatnonzero((draws >= 0.8 * probability) & (draws < 0.9 * probability))
    masked[random] = rng.integers(vocab_size, size=len(random))
    return masked, np.where(draws < probability, ids, IGNORED_LABEL)


def check_probability(probability: float) -> None:
    """InputError unless it is a share of the tokens that leaves something to predict from."""
    if not 0 <= probability < 1:
        raise InputError(
            f"data.mlm_probability: wanted a share of the tokens in [0, 1), got {probability}; 0 switches MLM off."
        )
