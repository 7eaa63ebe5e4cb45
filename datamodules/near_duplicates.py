"""Near-duplicate detection: two texts are near-duplicates if runs of eight words that they share cover at least half of
the words of the shorter text. Boilerplate, such as a signature below every answer, does not count.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence, Set

SHINGLE = 8  # words per shingle
SHARED = 0.5  # share of the words of the shorter text at which two texts are near-duplicates
COMMON_TEXTS = 10  # a shingle is boilerplate if it occurs in more than this number of texts
COMMON_SHARE = 0.05  # and in more than this share of the texts
WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _shingles(words: Sequence[str], step: int = 1) -> list[int]:
    """Return 64 bits of every ``step``-th shingle of a text, given as a list of words."""
    return [hash(tuple(words[start : start + SHINGLE])) for start in range(0, len(words) - SHINGLE + 1, step)]


def boilerplate_of(texts: Iterable[str]) -> frozenset[int]:
    """Return the shingles that occur in more than `COMMON_TEXTS` and more than `COMMON_SHARE` of the distinct texts."""
    distinct = {tuple(words_of(text)) for text in texts}
    counts = Counter(run for words in distinct for run in set(_shingles(words)))
    limit = max(COMMON_TEXTS, COMMON_SHARE * len(distinct))
    return frozenset(run for run, number in counts.items() if number > limit)


class NearDuplicateIndex:
    """Index that finds the near-duplicates of a text among ``texts``: those with which it shares
    runs of eight words that cover at least half of the words of the shorter text.

    Shared words are counted in shingles of `SHINGLE` consecutive words, and every `SHINGLE`-th shingle of a text is
    looked up. The number of shingles found for a copied part is proportional to its length, wherever it begins.
    The words of the shingles in ``boilerplate`` are not counted, neither as shared words nor in the length of a text.

    Args:
        min_own: Fraction of words outside of boilerplate. A text with a smaller fraction is compared by all its words.
        max_texts: Number of texts that are listed for a shingle. If more texts share it, the first ones represent
            them, so that time and memory are linear in the number of copies of a text.
    """

    def __init__(
        self,
        texts: Iterable[str],
        boilerplate: Set[int] = frozenset(),
        *,
        min_own: float = 0.0,
        max_texts: int = sys.maxsize,
    ) -> None:
        self.boilerplate, self.min_own = boilerplate, min_own
        self.lengths = list[int]()
        self.texts_with = dict[int, int | set[int]]()  # by 64 bits of a shingle; nearly all occur in one text only
        for place, words in enumerate(map(words_of, texts)):
            ignored, length = self._counted(words)
            self.lengths.append(length)
            for run in _shingles(words):
                if run in ignored:
                    continue
                before = self.texts_with.setdefault(run, place)
                if isinstance(before, set):
                    if len(before) < max_texts:
                        before.add(place)
                elif before != place:
                    self.texts_with[run] = {before, place}

    def has(self, words: Sequence[str]) -> bool:
        """Return whether a text, given as a list of words, is a near-duplicate of any indexed text."""
        return bool(self.like(words))

    def like(self, words: Sequence[str]) -> list[int]:
        """Return the indices of the indexed texts that are near-duplicates of a text, given as a list of words."""
        runs = [run for run in _shingles(words, SHINGLE) if run in self.texts_with]
        if not runs:
            return []
        shared = Counter[int]()
        ignored, length = self._counted(words)
        for run in runs:
            if run in ignored:
                continue
            found = self.texts_with[run]
            for place in (found,) if isinstance(found, int) else found:
                shared[place] += SHINGLE
        return [place for place, number in shared.items() if number >= SHARED * min(length, self.lengths[place])]

    def _counted(self, words: Sequence[str]) -> tuple[Set[int], int]:
        """Return the shingles that are ignored in a text, and the number of words that count."""
        if self.boilerplate:
            places = (start for start, run in enumerate(_shingles(words)) if run in self.boilerplate)
            own = len(words) - len({place for start in places for place in range(start, start + SHINGLE)})
            if own >= self.min_own * len(words):
                return self.boilerplate, own
        return frozenset(), len(words)
