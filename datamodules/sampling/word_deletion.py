"""Delete words of stored texts, the input noise of TSDAE (Wang, Reimers and Gurevych, 2021, section 3).

The store contains token ids, so deletion works on ids. A word is a piece of text between blanks. Punctuation marks at
its edges are separate words, and with WordPiece also those inside it, since its ids do not distinguish "well-known"
from "well - known". The published code instead uses nltk's word_tokenize, which keeps "well-known" and "U.S." and
splits "don't" into "do" and "n't".
"""

import unicodedata
from typing import Any

import numpy as np

from contrastive_encoders.datamodules.store.tokenizer import word_start_table

DELETION = 2  # separate random stream, next to those of spans and masks


class WordDeletion:
    """Callable that deletes each word of a text with probability ``share``, as input noise. If no word would remain,
    one random word is kept.

    The draws are a function of (seed, pass over the data, row of the store).
    """

    def __init__(self, tokenizer: Any, share: float, *, seed: int) -> None:
        self.share, self.seed = share, seed
        self.starts, self.marks = word_start_table(tokenizer), punctuation_table(tokenizer)

    def __call__(self, ids: np.ndarray, pass_index: int, row: int) -> np.ndarray:
        """Delete random words of a text with the token ids ``ids``, (n,) with n >= 1, and return the ids of the
        remaining words in order.
        """
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
    """Return, for each token, whether it is punctuation at the beginning or end of a whitespace-separated word, (n,)
    bool.
    """
    unit_n, places_n = np.cumsum(begins_n) - 1, np.arange(len(mark_n))
    first = np.full(unit_n[-1] + 1, len(mark_n))
    last = np.full(unit_n[-1] + 1, -1)
    np.minimum.at(first, unit_n[~mark_n], places_n[~mark_n])
    np.maximum.at(last, unit_n[~mark_n], places_n[~mark_n])
    return mark_n & ((places_n < first[unit_n]) | (places_n > last[unit_n]))


def punctuation_table(tokenizer: Any) -> np.ndarray:
    """Return, for each token id, whether the token consists only of punctuation marks or symbols, (len(tokenizer),)
    bool.
    """
    spelled = tokenizer.backend_tokenizer.decode_batch([[id] for id in range(len(tokenizer))])
    return np.array([_is_punctuation(text.strip().removeprefix("##")) for text in spelled], dtype=bool)


def _is_punctuation(text: str) -> bool:
    """Return whether a string consists only of punctuation marks and symbols. Parts of multi-byte characters, decoded
    as U+FFFD, are neither.
    """
    return bool(text) and "\ufffd" not in text and all(unicodedata.category(one)[0] in "PS" for one in text)
