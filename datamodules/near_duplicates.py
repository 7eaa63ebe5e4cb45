"""Near-duplicate detection: texts that share half of their word n-grams."""

import re
from collections import Counter
from collections.abc import Sequence

SHINGLE = 8  # words in a row by which near-copies are found
SHARED = 0.5  # of the words of the shorter text: from here on one is a near-copy of the other
WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


class NearDuplicateIndex:
    """Finds texts that share half of their words, or half of the other's where that is shorter, with one of ``texts``.

    Words are shared in runs of `SHINGLE`, and every `SHINGLE`-th run of a text is looked up: what is copied of it has
    as many as it is long, wherever it begins.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        words = [words_of(text) for text in texts]
        self.lengths = [len(one) for one in words]
        self.texts_with = dict[int, int | set[int]]()  # by 64 bits of a run; nearly all stand in one text alone
        for place, one in enumerate(words):
            for start in range(len(one) - SHINGLE + 1):
                run = hash(tuple(one[start : start + SHINGLE]))
                before = self.texts_with.setdefault(run, place)
                if isinstance(before, set):
                    before.add(place)
                elif before != place:
                    self.texts_with[run] = {before, place}

    def has(self, words: Sequence[str]) -> bool:
        """Whether the text of these words is such a one."""
        return bool(self.like(words))

    def like(self, words: Sequence[str]) -> list[int]:
        """The places of the texts that it is such a one of."""
        shared = Counter[int]()
        for start in range(0, len(words) - SHINGLE + 1, SHINGLE):
            found = self.texts_with.get(hash(tuple(words[start : start + SHINGLE])), ())
            for place in (found,) if isinstance(found, int) else found:
                shared[place] += SHINGLE
        return [place for place, number in shared.items() if number >= SHARED * min(len(words), self.lengths[place])]
