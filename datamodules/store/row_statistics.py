"""Statistics of the rows in a token store: the distribution of text lengths and the number of repeated rows."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from contrastive_encoders.datamodules.sources.records import Record

LONGEST_COUNTED = 8192  # tokens: no backbone is trained on longer texts, so all longer texts are counted together


class TextLengths:
    """Histogram of text lengths in tokens (without special tokens) for each column.

    It contains all that is needed to choose a truncation length. Texts of more than 8,192 tokens are only counted,
    together with their total number of tokens.
    """

    def __init__(self, columns: int) -> None:
        self.counts = np.zeros((columns, LONGEST_COUNTED + 2), np.int64)  # the last bin counts longer texts
        self.longer = np.zeros(columns, np.int64)  # total tokens of these longer texts

    def add(self, lengths: np.ndarray) -> None:
        """Add text lengths in tokens to the histograms; ``lengths``, (rows * columns,), contains them row by row."""
        for column, own in enumerate(lengths.reshape(-1, len(self.counts)).T):
            is_longer = own > LONGEST_COUNTED
            self.counts[column] += np.bincount(np.minimum(own, LONGEST_COUNTED + 1), minlength=LONGEST_COUNTED + 2)
            self.longer[column] += own[is_longer].sum()

    def tokens(self, columns: Sequence[int] | None = None) -> int:
        """Return the total number of tokens in the texts of these columns. ``None`` means all columns."""
        chosen = self._chosen(columns)
        return int(self.counts[chosen, :-1].sum(0) @ np.arange(LONGEST_COUNTED + 1) + self.longer[chosen].sum())

    def behind(self, room: int, columns: Sequence[int] | None = None) -> int:
        """Return the number of tokens that are lost if every text is truncated to ``room`` tokens."""
        chosen = self._chosen(columns)
        lost = np.maximum(np.arange(LONGEST_COUNTED + 1) - room, 0)
        beyond = self.longer[chosen].sum() - room * self.counts[chosen, -1].sum()
        return int(self.counts[chosen, :-1].sum(0) @ lost + max(beyond, 0))

    def truncated_fraction(self, room: int, columns: Sequence[int] | None = None) -> float:
        """Return the fraction of tokens, 0..1, that truncating every text to ``room`` tokens removes."""
        return self.behind(room, columns) / max(1, self.tokens(columns))

    def covering(self, share: float) -> int:
        """Return the smallest length L, in tokens, for which at least a fraction ``share`` of the texts have at most L
        tokens.

        Return 8,193 if 8,192 tokens are not enough.
        """
        counts = self.counts.sum(0)
        counts[0] = 0  # empty texts that fill up rows with lists of texts
        texts = np.cumsum(counts)
        return int(np.searchsorted(texts, share * texts[-1]))

    def _chosen(self, columns: Sequence[int] | None) -> list[int]:
        return list(range(len(self.counts)) if columns is None else columns)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the histograms as JSON types, with one entry for each column."""
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
    """Counter of repeated rows: rows whose texts are all equal to those of an earlier row. Uses eight bytes per row, or
    sixteen if rows have labels.
    """

    def __init__(self) -> None:
        self._texts, self._labeled = array("Q"), array("Q")
        self._own_negatives = 0

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            whole = b"\xff".join(text.encode(errors="surrogatepass") for text in record.texts)  # not a UTF-8 byte
            self._texts.append(_digest(whole))
            positives, negatives = record.texts[1 : 1 + record.positives], record.texts[1 + record.positives :]
            self._own_negatives += any(text in positives for text in negatives if text)
            if record.label is not None:
                self._labeled.append(_digest(b"%b\xff%a" % (whole, record.label)))

    def count(self) -> dict[str, int]:
        """Return the number of rows with the texts of an earlier row (``repeated``), how many of them have another
        label than each earlier row with these texts (``relabeled``), and the number of rows with a negative that equals
        a positive of the row (``own_negatives``).
        """
        repeated = _count_repeated(self._texts)
        relabeled = repeated - _count_repeated(self._labeled) if self._labeled else 0
        return {"repeated": repeated, "relabeled": relabeled, "own_negatives": self._own_negatives}


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def _count_repeated(values: array) -> int:
    numbers = np.frombuffer(values, np.uint64)
    numbers.sort()  # in place
    return int(np.count_nonzero(numbers[1:] == numbers[:-1]))
