"""Output handling of the published code, and optional filters of sampled texts.

Texts are never stripped: " A" stays " A".
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from contrastive_encoders.core.config_schema import config_field

Copies = Literal["keep", "exact", "normalised"]
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
NOT_A_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Published: only texts that are cut or hold a newline are dropped; training drops copies and duplicates later."""

    keep_unclosed: bool = config_field(False, "true: keep texts that were cut before a quotation mark")
    allow_newlines: bool = config_field(False, "true: keep texts with a newline")
    min_words: int = config_field(0, "minimum number of words", ge=0)
    copies: Copies = config_field(
        "keep",
        "copies of the first sentence; exact: drop them; normalised: also if only case, punctuation, or blanks differ",
    )
    drop_duplicates: bool = config_field(False, "true: drop a text that was accepted for the same input and label")

    def rejected(self, text: str, closed: bool, x1: str | None) -> str:
        """Why a text is not taken, the first reason that applies; empty where it is."""
        broken = "\n" in text and not self.allow_newlines
        if not closed and not self.keep_unclosed:
            return NEWLINE if broken else UNCLOSED  # the decoder gives a sample up at a newline that nobody wants
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
        return text == x1 or (self.copies == "normalised" and is_folded_copy(text, x1))


def folded(text: str) -> str:
    """Case and punctuation removed, words one blank apart. Vowel signs and accents stay with their letters."""
    return " ".join(NOT_A_WORD.sub(_blanked, unicodedata.normalize("NFC", text.casefold())).split())


def _blanked(found: re.Match[str]) -> str:
    run = found[0]  # \W takes combining marks, without which words of Hindi or Thai would fall apart
    return " " if run.isascii() else "".join(c if unicodedata.category(c)[0] == "M" else " " for c in run)


def is_folded_copy(text: str, x1: str) -> bool:
    """Equal but for case and punctuation; of texts without any letter or digit only equal ones."""
    return text == x1 or folded(text) == folded(x1) != ""


class NearDuplicates:
    """Which texts share at least ``threshold`` of their words (Jaccard of the sets) with an earlier one, exactly.

    Two such sets must meet in a short prefix of each, in any fixed order of words (prefix filtering, Bayardo et al.
    2007); longer words are rarer, so the order is by length.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.kept: list[frozenset[str]] = []
        self.by_word: dict[str, list[int]] = {}

    def earlier(self, text: str) -> int | None:
        """The first text that is like it, counted among the new ones; None of a new one, which is remembered."""
        words = frozenset(folded(text).split()) or frozenset((text,))
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
        # One more than exact arithmetic needs: threshold * n may come out a bit above a whole number
        yield from order[: min(len(order), len(order) - int(self.threshold * len(order)) + 1)]


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Words that both have over words that either has; 0 where neither has any."""
    union = len(left | right)
    return len(left & right) / union if union else 0.0
