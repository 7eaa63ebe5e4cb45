"""Which token ids begin a word: what whole-word masking needs to know of a tokenizer."""

from typing import Any

import numpy as np


def word_start_table(tokenizer: Any) -> np.ndarray:
    """(len(tokenizer),) bool: whether the id begins a word. Special tokens do."""
    ...
