"""Contamination check: find the test sentences that occur in the training text, by comparing token ids."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from contrastive_encoders.core.shared_texts import is_checked
from contrastive_encoders.datamodules.store.token_store import TokenStore
from contrastive_encoders.datamodules.store.tokenization import RowTokenizer

MULTIPLIER = 0x9E3779B97F4A7C15  # odd, with well-mixed bits (2^64 over the golden ratio)
SIEVE_BITS = 20  # a table of 1 MB, which fits into the processor's cache, rejects most windows
BLOCK_TOKENS = 1 << 20


class Overlap(NamedTuple):
    """Indices of the test sentences that were checked, and of those that were found in the training text."""

    checked: set[int]
    found: set[int]

    def counts(self) -> dict[str, int]:
        return {"checked": len(self.checked), "found": len(self.found)}


def merge_overlaps(several: Sequence[Overlap]) -> Overlap:
    """Merge the overlaps of several datasets with the same test sentences."""
    return Overlap(*(set.union(*places) for places in zip(*several, strict=True)))


def find_overlap(
    store: TokenStore, tokenization: RowTokenizer, sentences: Sequence[str], min_tokens: int = 8
) -> Overlap:
    """Find the test sentences that occur in the texts of the token store.

    ``checked`` are the sentences that are long enough. ``found`` are those of them that one text contains or, for
    sentences of fewer than ``min_tokens`` tokens, that are equal to a text.

    "Contains" means the same consecutive ids. Sentences are tokenized as the texts are. In documents, a sentence has a
    leading space and the case of the store, so a sentence directly after a quotation mark may be missed. In rows, it is
    tried with and without a leading space.
    """
    forms = [_split(*tokenization.encode(spelled)) for spelled in tokenization.spellings(sentences)]
    checked = [place for place, sentence in enumerate(sentences) if is_checked(sentence)]
    needles = [(place, form[place]) for form in forms for place in checked]
    long = [(place, ids) for place, ids in needles if len(ids) >= min_tokens]
    short = [(place, ids) for place, ids in needles if 0 < len(ids) < min_tokens]
    found = contained(store, [ids for _, ids in long], min_tokens)
    equal = _equal_to_a_text(store, [ids for _, ids in short])
    places = [place for place, _ in (*long, *short)]
    return Overlap(set(checked), {places[index] for index in np.flatnonzero([*found, *equal])})


def _split(flat: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else []


def contained(store: TokenStore, needles: Sequence[np.ndarray], min_tokens: int) -> np.ndarray:
    """Return, for each sequence of token ids in ``needles``, whether any text contains it, (needles,) bool.

    Each needle has at least ``min_tokens`` ids.

    All windows of the text are hashed in a vectorized pass. If a hash matches the beginning of a needle, the ids are
    compared.
    """
    found = np.zeros(len(needles), dtype=bool)
    if not needles:
        return found
    starts = _window_hashes(np.concatenate([needle[:min_tokens] for needle in needles]), min_tokens)[::min_tokens]
    hashes, group_of_needle = np.unique(starts, return_inverse=True)
    by_group = np.argsort(group_of_needle, kind="stable")
    borders = np.searchsorted(group_of_needle[by_group], np.arange(len(hashes) + 1))
    for group, positions in _matching_windows(store.ids, hashes, min_tokens):
        ends = store.offsets[np.searchsorted(store.offsets, positions, side="right")]
        for needle in by_group[borders[group] : borders[group + 1]]:
            found[needle] = found[needle] or _occurs_at(store.ids, positions, ends, needles[needle])
    return found


def _equal_to_a_text(store: TokenStore, needles: Sequence[np.ndarray]) -> np.ndarray:
    """Return, for each sequence of token ids in ``needles``, whether a text is equal to it, (needles,) bool."""
    texts = set[bytes]()
    for length in {len(needle) for needle in needles}:
        factors = np.array([pow(MULTIPLIER, place + 1, 1 << 64) for place in range(length)], np.uint64)
        hashes = [needle.astype(np.uint64) @ factors for needle in needles if len(needle) == length]
        for first in range(0, len(store.offsets) - 1, BLOCK_TOKENS):
            offsets = store.offsets[first : first + BLOCK_TOKENS + 1]
            starts = offsets[:-1][np.diff(offsets) == length]
            ids = store.ids[starts[:, None] + np.arange(length)]
            # kind: by default, numpy 2.0 overflows
            found = np.isin(ids.astype(np.uint64) @ factors, hashes, kind="sort")
            texts |= {row.tobytes() for row in ids[found]}
    return np.array([needle.tobytes() in texts for needle in needles], dtype=bool)


def _matching_windows(ids: np.ndarray, hashes: np.ndarray, window: int) -> Iterator[tuple[int, np.ndarray]]:
    """Search ``ids`` block by block: for each of the sorted ``hashes`` that occurs, yield its index and the positions
    of the windows with this hash.
    """
    shift = np.uint64(64 - SIEVE_BITS)
    sieve = np.zeros(1 << SIEVE_BITS, dtype=bool)
    sieve[hashes >> shift] = True
    for first in range(0, len(ids) - window + 1, BLOCK_TOKENS):
        window_hashes = _window_hashes(ids[first : first + BLOCK_TOKENS + window - 1], window)
        positions = np.flatnonzero(sieve[window_hashes >> shift])
        candidates = window_hashes[positions]
        groups = np.minimum(np.searchsorted(hashes, candidates), len(hashes) - 1)
        equal = hashes[groups] == candidates
        positions, groups = positions[equal] + first, groups[equal]
        order = np.argsort(groups, kind="stable")
        present, borders = np.unique(groups[order], return_index=True)
        for group, some in zip(present, np.split(positions[order], borders)[1:], strict=True):
            yield int(group), some


def _window_hashes(ids: np.ndarray, window: int) -> np.ndarray:
    """Return a hash of each window of ``window`` consecutive ids, (len(ids) - window + 1,) uint64: a polynomial in the
    ids, modulo 2^64.
    """
    wide = ids.astype(np.uint64)
    hashes = np.zeros(len(ids) - window + 1, dtype=np.uint64)
    for offset in range(window):
        factor = np.uint64(pow(MULTIPLIER, offset + 1, 1 << 64))
        hashes += wide[offset : offset + len(hashes)] * factor
    return hashes


def _occurs_at(ids: np.ndarray, positions: np.ndarray, ends: np.ndarray, needle: np.ndarray) -> bool:
    """Return whether ``needle`` begins at any of the positions in ``ids`` and ends within the same document."""
    positions = positions[positions + len(needle) <= ends]
    for offset, id in enumerate(needle):
        if len(positions) == 0:
            return False
        positions = positions[ids[positions + offset] == id]
    return len(positions) > 0
