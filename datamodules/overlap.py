"""How many test sentences stand word for word in the training text: contamination, counted on token ids."""

from collections.abc import Sequence
from typing import Any

from datamodules.token_store import TokenStore


def count_overlap(store: TokenStore, tokenizer: Any, sentences: Sequence[str], min_tokens: int = 8) -> dict[str, int]:
    """``checked``: sentences of at least ``min_tokens`` tokens; ``found``: those that one document contains.

    Lower-cased as the store was (``store.manifest["lowercase"]``).
    """
    ...
