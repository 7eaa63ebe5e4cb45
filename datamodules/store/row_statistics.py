"""Statistics of the rows in a token store: the distribution of text lengths, and how many rows are repeated."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from contrastive_encoders.datamodules.sources.records import Record

LONGEST_COUNTED = 8192  # tokens: no backbone that is trained reads longer texts; those beyond are counted together


class TextLengths:
    """How many texts of each column have how many tokens, special tokens not counted: all that a length to cut them at
    has to be chosen by. Of every longer text than 8,192 tokens it knows that there is one, and of all how many tokens
    they have.
    """

    def __init__(self, columns: int) -> None:
        self.counts = np.zeros((columns, LONGEST_COUNTED + 2), np.int64)  # the last: longer
        self.longer = np.zeros(columns, np.int64)  # tokens of those

    def add(self, lengths: np.ndarray) -> None:
        """(rows * columns,) tokens of the texts, row by row."""
        for column, own in enumerate(lengths.reshape(-1, len(self.counts)).T):
            is_longer = own > LONGEST_COUNTED
            self.counts[column] += np.bincount(np.minimum(own, LONGEST_COUNTED + 1), minlength=LONGEST_COUNTED + 2)
            self.longer[column] += own[is_longer].sum()

    def tokens(self, columns: Sequence[int] | None = None) -> int:
        """Return the tokens of all texts of these columns; None: of every column."""
        chosen = self._chosen(columns)
        return int(self.counts[chosen, :-1].sum(0) @ np.arange(LONGEST_COUNTED + 1) + self.longer[chosen].sum())

    def behind(self, room: int, columns: Sequence[int] | None = None) -> int:
        """Tokens that are lost where every text keeps ``room`` of them at most."""
        chosen = self._chosen(columns)
        lost = np.maximum(np.arange(LONGEST_COUNTED + 1) - room, 0)
        beyond = self.longer[chosen].sum() - room * self.counts[chosen, -1].sum()
        return int(self.counts[chosen, :-1].sum(0) @ lost + max(beyond, 0))

    def share_behind(self, room: int, columns: Sequence[int] | None = None) -> float:
        """Return the same as a share of all tokens, 0..1."""
        return self.behind(room, columns) / max(1, self.tokens(columns))

    def covering(self, share: float) -> int:
        """The fewest tokens that so large a share of all texts has no more of; 8,193 where those are not enough."""
        counts = self.counts.sum(0)
        counts[0] = 0  # places of texts that a row with lists does not have
        texts = np.cumsum(counts)
        return int(np.searchsorted(texts, share * texts[-1]))

    def _chosen(self, columns: Sequence[int] | None) -> list[int]:
        return list(range(len(self.counts)) if columns is None else columns)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the counts of the lengths of each column."""
        return [
            {"texts": {str(length): int(own[length]) for length in np.flatnonzero(own)}, "longer": int(longer)}
            for own, longer in zip(self.counts, self.longer, strict=True)
        ]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> "TextLengths":
        found = cls(len(columns))
        for place, one in enumerate(columns):
            for length, number in one["texts"].items():
                found.counts[place, int(length)] = number
            found.longer[place] = one["longer"]
        return found


class Repeats:
    """Counts the rows whose texts are all those of an earlier row, letter by letter. Eight bytes for each row."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            whole = b"\xff".join(text.encode(errors="surrogatepass") for text in record.texts)  # no byte of any text
            self._digests.append(int.from_bytes(hashlib.blake2b(whole, digest_size=8).digest(), "big"))

    def count(self) -> int:
        digests = np.frombuffer(self._digests, np.uint64)
        digests.sort()  # in place
        return int(np.count_nonzero(digests[1:] == digests[:-1]))
