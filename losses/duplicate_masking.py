"""Equal texts of a batch: which are no negatives of each other, told by a hash of their tokens.

Shape letters: N texts of a view, R rows on this rank, C candidates of all ranks, K rows of a block.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.losses.gather import gather_plain

NO_TEXT = torch.iinfo(torch.int64).min  # equal to no text
FILLER = NO_TEXT + 1  # number of an empty text that fills up a row with fewer hard negatives, and is no negative
_KEYS_AT_ONCE = 4096
_PAIRS_AT_ONCE = 2**22  # of a text and a candidate


class EqualTexts(NamedTuple):
    """Pairs of (R,) numbers of rows and (C,) numbers of candidates: a candidate is no negative of a row where both
    numbers of any pair are equal. Equal texts have equal numbers.

    In every loss these are the row's own text and the candidate's, the text of the row's partner and the candidate's,
    and the row's own text and that of the candidate's partner, of which the candidate is another positive. Where two
    positives are compared, so are the texts of their partners.
    """

    pairs: Sequence[tuple[Tensor, Tensor]]

    def left_out(self, block: slice) -> Tensor:
        """(K, C) bool; true of the row's partner, too."""
        (row_R, candidate_C), *others = self.pairs
        equal_KC = row_R[block, None] == candidate_C
        for row_R, candidate_C in others:
            equal_KC |= row_R[block, None] == candidate_C
        return equal_KC


def equal_texts(
    own_R: Tensor,
    partner_R: Tensor,
    candidate_C: Tensor,
    partner_of_candidate_C: Tensor,
    *,
    of_one_kind: bool = False,
) -> EqualTexts:
    """The pairs of rows that have a partner among candidates; `NO_TEXT` is the partner of candidates without one.

    Rows and candidates are ``of_one_kind`` where positives are told from positives: those of an equal anchor share a
    partner.
    """
    pairs = [(own_R, candidate_C), (partner_R, candidate_C), (own_R, partner_of_candidate_C)]
    return EqualTexts([*pairs, (partner_R, partner_of_candidate_C)] if of_one_kind else pairs)


def other_positives(accepted_BP: Tensor | None, candidate_C: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the pairs that leave out candidates whose text is one of the ``accepted`` texts of a row's anchor."""
    return [] if accepted_BP is None else [(accepted_B, candidate_C) for accepted_B in accepted_BP.T]


def anchors_that_accept(rows_B: Tensor, accepted_BP: Tensor | None) -> list[tuple[Tensor, Tensor]]:
    """Return the pairs that leave out the anchors, of all ranks, that accept the text of a row."""
    return [] if accepted_BP is None else [(rows_B, accepted_C) for accepted_C in gather_plain(accepted_BP).T]


def partners_of_documents(anchors_B: Tensor, positives_B: Tensor, hard_negatives_N: Tensor) -> Tensor:
    """Number the partners of the documents of all ranks, of each rank its positives and hard negatives.

    That of a positive is its anchor. So is that of a hard negative which any row has as a positive of an equal anchor;
    of others it is `NO_TEXT`. The device is not waited for.
    """
    if not len(hard_negatives_N):
        return gather_plain(anchors_B)
    anchors_N = anchors_B.repeat_interleave(len(hard_negatives_N) // len(anchors_B))
    known = gather_plain(_pair_numbers(anchors_B, positives_B)).sort().values
    wanted_N = _pair_numbers(anchors_N, hard_negatives_N)
    place_N = torch.searchsorted(known, wanted_N).clamp(max=len(known) - 1)
    partners_N = torch.where(known[place_N] == wanted_N, anchors_N, NO_TEXT)
    return gather_plain(torch.cat([anchors_B, partners_N]))


def count_negatives(
    anchors_B: Tensor,
    positives_B: Tensor,
    hard_negatives_N: Tensor | None = None,
    *,
    groups: Tensor | None = None,
    accepted: Tensor | None = None,
    exclude_equal: bool = True,
) -> Tensor:
    """Return the (B,) number of negatives of each anchor of a global batch, which has the texts of all ranks.

    These are the positives and hard negatives that the loss does not leave out; if it keeps equal texts, those that
    differ from the anchor's positive. Positives of an equal number in ``groups`` are no negatives, nor are the (B, P)
    ``accepted`` texts of an anchor.
    """
    hard_N = positives_B[:0] if hard_negatives_N is None else hard_negatives_N
    candidate_C = torch.cat([positives_B, hard_N])
    equal = EqualTexts([(positives_B, candidate_C)])
    if exclude_equal:
        anchors_N = anchors_B.repeat_interleave(len(hard_N) // len(anchors_B))
        is_positive_N = torch.isin(_pair_numbers(anchors_N, hard_N), _pair_numbers(anchors_B, positives_B))
        partner_C = torch.cat([anchors_B, torch.where(is_positive_N, anchors_N, NO_TEXT)])
        equal = equal_texts(anchors_B, positives_B, candidate_C, partner_C)
        equal = EqualTexts([*equal.pairs, *other_positives(accepted, candidate_C)])
    group_C = None if groups is None else torch.cat([groups, groups.new_full((len(hard_N),), NO_TEXT)])
    return _count(equal, len(anchors_B), len(candidate_C), groups, group_C)


def count_negatives_of_views(left_B: Tensor, right_B: Tensor, *, exclude_equal: bool = True) -> Tensor:
    """Return the same of each of the (2B,) texts of two views, whose candidates are all others: `nt_xent`."""
    own_R, partner_R = torch.cat([left_B, right_B]), torch.cat([right_B, left_B])
    if exclude_equal:
        return _count(equal_texts(own_R, partner_R, own_R, partner_R, of_one_kind=True), len(own_R), len(own_R))
    place_R = torch.arange(len(own_R))
    return _count(EqualTexts([(partner_R, own_R)]), len(own_R), len(own_R), place_R, place_R)


def _count(
    equal: EqualTexts, rows: int, candidates: int, row_group: Tensor | None = None, group_C: Tensor | None = None
) -> Tensor:
    found = list[Tensor]()
    for start in range(0, rows, size := max(1, _PAIRS_AT_ONCE // candidates)):
        block = slice(start, start + size)
        left_out_KC = equal.left_out(block)
        if row_group is not None:
            left_out_KC |= row_group[block, None] == group_C
        found.append((~left_out_KC).sum(1))
    return torch.cat(found)


def _pair_numbers(first: Tensor, second: Tensor) -> Tensor:
    """Numbers of pairs of texts, by those of their texts."""
    mixed = first * int(_keys(1)[0]) + second
    return (mixed ^ (mixed >> 29)) * int(_keys(1)[1])


def text_hashes(ids: Tensor, lengths: np.ndarray, left_out: slice = slice(0, 0)) -> Tensor:
    """Hash each of N token sequences, which stand one behind the other in ``ids``, to an (N,) int64 on their device.
    The places ``left_out`` of each sequence do not count.

    A sum over places of a key times the id, modulo 2^64 (multilinear hashing, Lemire and Kaser, 2014), so two different
    texts of a vocabulary below 2^18 meet with a chance below 2^-45. The device is not waited for.
    """
    if left_out.stop > left_out.start:
        place = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kept = np.flatnonzero((place < left_out.start) | (place >= left_out.stop))
        ids = ids[torch.from_numpy(kept).to(ids.device, non_blocking=True)]
        lengths = lengths - np.clip(lengths - left_out.start, 0, left_out.stop - left_out.start)
    text = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(text)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keys = _keys(-(-(int(lengths.max(initial=0)) + 1) // _KEYS_AT_ONCE))
    key, row = (torch.from_numpy(one).to(ids.device, non_blocking=True) for one in (keys[place + 1], text))
    start = torch.from_numpy(keys[0] * lengths.astype(np.int64)).to(ids.device, non_blocking=True)
    mixed = (ids + 1) * key
    return start.index_add(0, row, mixed ^ (mixed >> 31))


@cache
def _keys(blocks: int) -> np.ndarray:
    """Odd numbers, the same in every process."""
    drawn = [
        np.random.default_rng((0x7E57, block)).integers(-(2**63), 2**63 - 1, _KEYS_AT_ONCE, dtype=np.int64)
        for block in range(blocks)
    ]
    keys: np.ndarray = np.concatenate(drawn) | 1
    return keys
