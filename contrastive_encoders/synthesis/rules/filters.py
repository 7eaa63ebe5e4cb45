"""Filters of generated texts: the filters of the published DINO code, and additional, optional filters.

Texts are never stripped: " A" stays " A".
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core.config_schema import config_field

Copies = Literal["keep", "exact", "normalized"]
UNCLOSED, EMPTY, NEWLINE, FEW_WORDS, COPY, DUPLICATE, NO_ROOM, CUT = (
    "no quotation mark",
    "empty",
    "newline",
    "too few words",
    "copy of x1",
    "duplicate",
    "no room in the context",
    "cut at an inner quotation mark",
)
NON_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Configuration keys of the filters of generated texts.

    By default, as published, only texts that are truncated or contain a newline are dropped. Copies and duplicates are
    dropped later, by the training.
    """

    keep_unclosed: bool = config_field(
        False, "whether to keep texts that were truncated before their closing quotation mark"
    )
    allow_newlines: bool = config_field(False, "whether to keep texts that contain a newline")
    min_words: int = config_field(0, "minimum number of words of a generated text", ge=0)
    copies: Copies = config_field(
        "keep",
        "which texts are dropped as copies of the first sentence; keep: none, copies are kept; exact: exact copies; "
        "normalized: exact copies, and copies that differ only in case, punctuation, or spaces",
    )
    drop_duplicates: bool = config_field(
        False, "whether to drop a text that was already accepted for the same input and label"
    )

    def rejected(self, text: str, closed: bool, x1: str | None) -> str:
        """Return the first reason to reject a text, or an empty string if the text is accepted."""
        broken = "\n" in text and not self.allow_newlines
        if not closed and not self.keep_unclosed:
            return NEWLINE if broken else UNCLOSED  # the decoder abandons a sample at an unwanted newline
        if not text.strip():
            return EMPTY
        if broken:
            return NEWLINE
        if len(text.split()) < self.min_words:
            return FEW_WORDS
        if x1 is not None and self._is_copy(text, x1):
            return COPY
        return ""

    def _is_copy(self, text: str, x1: str) -> bool:
        if self.copies == "keep":
            return False
        return text == x1 or (self.copies == "normalized" and is_folded_copy(text, x1))


def fold(text: str) -> str:
    """Normalize a text: lowercase, no punctuation, one space between words. Accents and vowel signs are kept."""
    return " ".join(NON_WORD.sub(_blank_out, unicodedata.normalize("NFC", text.casefold())).split())


def _blank_out(found: re.Match[str]) -> str:
    run = found[0]  # \W matches combining marks, without which words of Hindi or Thai would be split
    return " " if run.isascii() else "".join(c if unicodedata.category(c)[0] == "M" else " " for c in run)


def is_folded_copy(text: str, x1: str) -> bool:
    """Return whether two texts are equal, ignoring case and punctuation.

    Texts without letters or digits must be equal exactly.
    """
    return text == x1 or fold(text) == fold(x1) != ""


class NearDuplicates:
    """Exact search for earlier texts whose word sets have a Jaccard similarity of at least ``threshold`` to that of a
    new text.

    Two such word sets must share a word in a short prefix of each, in any fixed order of words (prefix filtering,
    Bayardo et al. 2007). Words are ordered by decreasing length, since longer words are rarer.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.kept: list[frozenset[str]] = []
        self.by_word: dict[str, list[int]] = {}

    def earlier(self, text: str) -> int | None:
        """Return the index of the first earlier text that is a near-duplicate, or None if there is none.

        Only texts for which None was returned are stored and counted by the index.
        """
        words = frozenset(fold(text).split()) or frozenset((text,))
        prefix = list(self._prefix(words))
        candidates = {place for word in prefix for place in self.by_word.get(word, ())}
        for place in sorted(candidates):
            if jaccard(words, self.kept[place]) >= self.threshold:
                return place
        for word in prefix:
            self.by_word.setdefault(word, []).append(len(self.kept))
        self.kept.append(words)
        return None

    def _prefix(self, words: frozenset[str]) -> Iterator[str]:
        order = sorted(words, key=lambda word: (-len(word), word))
        # One more than in exact arithmetic: threshold * n may be rounded to slightly above an integer
        yield from order[: min(len(order), len(order) - int(self.threshold * len(order)) + 1)]


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Jaccard similarity of two word sets, or 0 if both are empty."""
    union = len(left | right)
    return len(left & right) / union if union else 0.0
