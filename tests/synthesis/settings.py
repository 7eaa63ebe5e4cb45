"""Settings that tests change one of."""

from synthesis.decoding.continuations import Decoding

PUBLISHED = {"max_new_tokens": 40, "top_p": 0.9, "top_k": 5, "temperature": 1.0, "ban_eos": True, "stop": '"'}


def decoding(**changes):
    """DINO's published settings, but for these."""
    return Decoding(**{**PUBLISHED, "seed": 42, "rows": None, "token_budget": 32_768, **changes})
