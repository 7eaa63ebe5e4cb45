"""Near-duplicate detection: two texts are near-duplicates if runs of eight words that they share cover at least half of
the words of the shorter text.
"""

import re
from collections import Counter
from collections.abc import Sequence

SHINGLE = 8  # words per shingle
SHARED = 0.5  # share of the words of the shorter text at which two texts are near-duplicates
WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


class NearDuplicateIndex:
    """Index that finds the near-duplicates of a text among ``texts``: those with which it shares
    runs of eight words that cover at least half of the words of the shorter text.

    Shared words are counted in shingles of `SHINGLE` consecutive words, and every `SHINGLE`-th shingle of a text is
    looked up. The number of shingles found for a copied part is proportional to its length, wherever it begins.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        words = [words_of(text) for text in texts]
        self.lengths = [len(one) for one in words]
        self.texts_with = dict[int, int | set[int]]()  # by 64 bits of a shingle; nearly all occur in one text only
        for place, one in enumerate(words):
            for start in range(len(one) - SHINGLE + 1):
                run = hash(tuple(one[start : start + SHINGLE]))
                before = self.texts_with.setdefault(run, place)
                if isinstance(before, set):
                    before.add(place)
                elif before != place:
                    self.texts_with[run] = {before, place}

    def has(self, words: Sequence[str]) -> bool:
        """Return whether a text, given as a list of words, is a near-duplicate of any indexed text."""
        return bool(self.like(words))

    def like(self, words: Sequence[str]) -> list[int]:
        """Return the indices of the indexed texts that are near-duplicates of a text, given as a list of words."""
        shared = Counter[int]()
        for start in range(0, len(words) - SHINGLE + 1, SHINGLE):
            found = self.texts_with.get(hash(tuple(words[start : start + SHINGLE])), ())
            for place in (found,) if isinstance(found, int) else found:
                shared[place] += SHINGLE
        return [place for place, number in shared.items() if number >= SHARED * min(len(words), self.lengths[place])]
