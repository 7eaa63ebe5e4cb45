"""Delete words of stored texts, as TSDAE damages what its encoder reads (Wang, Reimers and Gurevych, 2021, section 3).

The store holds ids, and ids are cut. A word is what stands between blanks; punctuation marks at its edges are words of
their own, and so are those inside of it under WordPiece, whose ids do not tell "well-known" from "well - known". The
published code cuts by nltk's word_tokenize, which keeps "well-known" and "U.S." and parts "do" from "n't".
"""

import unicodedata
from typing import Any

import numpy as np

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.store.tokenizer import word_start_table

DELETION = 2  # a stream of random numbers of its own, beside those of spans and masks


class WordDeletion:
    """Each word goes with probability ``share``; where none would stay, one of them does, at random.

    What is drawn is a function of (seed, pass over the data, row of the store).
    """

    def __init__(self, tokenizer: Any, share: float, *, seed: int) -> None:
        if not 0 < share < 1:
            raise InputError(
                f"data.deletion={share}: wanted a share of the words between 0 and 1; 0.6 is published, null none."
            )
        self.share, self.seed = share, seed
        self.starts, self.marks = word_start_table(tokenizer), punctuation_table(tokenizer)

    def __call__(self, ids: np.ndarray, pass_index: int, row: int) -> np.ndarray:
        """(n,) ids of a text, n >= 1 -> those of the words that stay, in their order."""
        begins_n = self.starts[ids].copy()
        begins_n[0] = True
        edge_n = edge_marks(self.marks[ids], begins_n)
        begins_n |= edge_n
        begins_n[1:] |= edge_n[:-1]
        word_n = np.cumsum(begins_n) - 1
        words = int(word_n[-1]) + 1
        rng = np.random.default_rng((self.seed, pass_index, row, DELETION))
        stays = rng.random(words) >= self.share
        if not stays.any():
            stays[rng.integers(words)] = True
        return ids[stays[word_n]]


def edge_marks(mark_n: np.ndarray, begins_n: np.ndarray) -> np.ndarray:
    """(n,) bool: marks that have no other token before them, or none behind them, between two blanks."""
    unit_n, places_n = np.cumsum(begins_n) - 1, np.arange(len(mark_n))
    first = np.full(unit_n[-1] + 1, len(mark_n))
    last = np.full(unit_n[-1] + 1, -1)
    np.minimum.at(first, unit_n[~mark_n], places_n[~mark_n])
    np.maximum.at(last, unit_n[~mark_n], places_n[~mark_n])
    return mark_n & ((places_n < first[unit_n]) | (places_n > last[unit_n]))


def punctuation_table(tokenizer: Any) -> np.ndarray:
    """(len(tokenizer),) bool: whether the id spells punctuation marks or symbols and nothing else."""
    spelled = tokenizer.backend_tokenizer.decode_batch([[id] for id in range(len(tokenizer))])
    return np.array([_is_punctuation(text.strip().removeprefix("##")) for text in spelled], dtype=bool)


def _is_punctuation(text: str) -> bool:
    """A piece of a character of several bytes, which decodes as U+FFFD, is none."""
    return bool(text) and "\ufffd" not in text and all(unicodedata.category(one)[0] in "PS" for one in text)
