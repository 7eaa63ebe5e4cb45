"""Masks that exclude equal texts in a batch from each other's negatives. Texts are compared by a hash of their tokens.

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
FILLER = NO_TEXT + 1  # hash of an empty text that fills up a row with fewer hard negatives; it is never a negative
_KEYS_AT_ONCE = 4096
_PAIRS_AT_ONCE = 2**22  # pairs of a text and a candidate


class EqualTexts(NamedTuple):
    """Mask of the candidates that are not negatives of a row because their hashes are equal, for R rows and C
    candidates.

    A candidate is excluded if both hashes of one of the ``pairs`` are equal, or if one of the ``answers`` excludes it.
    """

    pairs: Sequence[tuple[Tensor, Tensor]]
    answers: Sequence["Answers"] = ()

    def excluded(self, block: slice) -> Tensor:
        """Return the mask of C candidates for a block of K rows, (K, C) bool. It is true for the row's partner."""
        (row_R, candidate_C), *others = self.pairs
        equal_KC = row_R[block, None] == candidate_C
        for row_R, candidate_C in others:
            equal_KC |= row_R[block, None] == candidate_C
        for answers in self.answers:
            equal_KC |= answers.excluded(block)
        return equal_KC


class KnownPairs(NamedTuple):
    """Hashes of P known pairs from all ranks; a pair is a text and another text that matches it, its answer."""

    text_P: Tensor
    answer_P: Tensor


class Answers(NamedTuple):
    """Mask of the candidates that a known pair lists as the answer to the row's text; `match_answers` creates this
    mask.
    """

    text_P: Tensor  # texts of the known pairs
    label_P: Tensor  # labels of the answers: the label of an equal candidate, or C if there is none
    row_R: Tensor
    label_C: Tensor  # below C, equal for equal candidates
    group_C: Tensor | None = None  # below C; if one candidate of a group is an answer, all of the group are excluded

    def excluded(self, block: slice) -> Tensor:
        """Return the mask of C candidates for a block of K rows, (K, C) bool."""
        row_K, size = self.row_R[block], len(self.label_C)
        count_LK = row_K.new_zeros((size + 1, len(row_K)), dtype=torch.float32)  # faster than integers on the CPU
        for text_P, label_P in zip(self.text_P.split(size), self.label_P.split(size), strict=True):
            count_LK.index_add_(0, label_P, (text_P[:, None] == row_K).float())
        found_CK = (count_LK > 0).index_select(0, self.label_C)
        if self.group_C is not None:
            count_CK = torch.zeros_like(found_CK, dtype=torch.float32).index_add_(0, self.group_C, found_CK.float())
            found_CK = (count_CK > 0).index_select(0, self.group_C)
        return found_CK.T


def match_answers(known: KnownPairs, row_R: Tensor, candidate_C: Tensor, group_C: Tensor | None = None) -> Answers:
    """Create the mask of the candidates that a known pair lists as the answer to a row's text."""
    order_C = candidate_C.sort().values
    place_P = torch.searchsorted(order_C, known.answer_P).clamp_(max=len(order_C) - 1)
    label_P = torch.where(order_C[place_P] == known.answer_P, place_P, len(order_C))
    return Answers(known.text_P, label_P, row_R, torch.searchsorted(order_C, candidate_C), group_C)


def known_pairs(
    texts_B: Tensor,
    positives_B: Tensor,
    accepted_BP: Tensor | None = None,
    accepted_by_positives_BP: Tensor | None = None,
) -> KnownPairs:
    """Gather the known pairs of texts and positives from all ranks.

    Args:
        texts_B: Hashes of texts.
        positives_B: Hashes of the texts' positives.
        accepted_BP: Hashes of further positives of each text.
        accepted_by_positives_BP: Hashes of further texts of each positive.
    """
    texts, answers = [texts_B], [positives_B]
    if accepted_BP is not None:
        texts.append(texts_B.repeat_interleave(accepted_BP.shape[1]))
        answers.append(accepted_BP.flatten())
    if accepted_by_positives_BP is not None:
        texts.append(accepted_by_positives_BP.flatten())
        answers.append(positives_B.repeat_interleave(accepted_by_positives_BP.shape[1]))
    pairs_P2 = gather_plain(torch.stack([torch.cat(texts), torch.cat(answers)], 1))
    return KnownPairs(*pairs_P2.T.contiguous())


def answers_of_anchors(anchors_B: Tensor, candidate_C: Tensor, known: KnownPairs) -> EqualTexts:
    """Return the mask of candidates that are not negatives of the anchor.

    These are copies of the anchor, and of the positives of each anchor in the global batch that has the same text.
    """
    return EqualTexts([(anchors_B, candidate_C)], [match_answers(known, anchors_B, candidate_C)])


def equal_views(own_R: Tensor, partner_R: Tensor) -> EqualTexts:
    """Return the mask of candidates in both views that are not negatives of a row.

    These are copies of the row, copies of its partners, and candidates that share a partner with the row.
    """
    own_C, partner_C = gather_plain(own_R), gather_plain(partner_R)
    known = known_pairs(own_R, partner_R)
    share_a_partner = match_answers(known, own_R, partner_C, equal_labels(own_C))
    return EqualTexts([(own_R, own_C)], [match_answers(known, own_R, own_C), share_a_partner])


def equal_labels(texts_C: Tensor) -> Tensor:
    """Return an integer label below C for each of C texts, which is equal for equal texts, without a device
    synchronization.
    """
    return torch.searchsorted(texts_C.sort().values, texts_C)


def count_negatives(
    anchors_B: Tensor,
    positives_B: Tensor,
    hard_negatives_N: Tensor | None = None,
    *,
    groups: Tensor | None = None,
    accepted: Tensor | None = None,
    exclude_equal: bool = True,
) -> Tensor:
    """Return the number of negatives of each of B anchors, (B,), in the global batch, which contains the texts of all
    ranks.

    Negatives are the positives and hard negatives that the loss does not exclude. If ``exclude_equal`` is False,
    only texts that differ from the anchor's positive count. Positives of the same group in ``groups`` and the (B, P)
    ``accepted`` texts of an anchor are not negatives.
    """
    hard_N = positives_B[:0] if hard_negatives_N is None else hard_negatives_N
    candidate_C = torch.cat([positives_B, hard_N])
    equal = EqualTexts([(positives_B, candidate_C)])
    if exclude_equal:
        equal = answers_of_anchors(anchors_B, candidate_C, known_pairs(anchors_B, positives_B, accepted))
    group_C = None if groups is None else torch.cat([groups, groups.new_full((len(hard_N),), NO_TEXT)])
    return _count(equal, len(anchors_B), len(candidate_C), groups, group_C)


def count_negatives_of_views(left_B: Tensor, right_B: Tensor, *, exclude_equal: bool = True) -> Tensor:
    """Return the number of negatives of each text in two views of B texts, (2B,). Candidates are all other texts
    (`nt_xent`).
    """
    own_R, partner_R = torch.cat([left_B, right_B]), torch.cat([right_B, left_B])
    if exclude_equal:
        return _count(equal_views(own_R, partner_R), len(own_R), len(own_R))
    place_R = torch.arange(len(own_R))
    return _count(EqualTexts([(partner_R, own_R)]), len(own_R), len(own_R), place_R, place_R)


def _count(
    equal: EqualTexts, rows: int, candidates: int, row_group: Tensor | None = None, group_C: Tensor | None = None
) -> Tensor:
    found = list[Tensor]()
    for start in range(0, rows, size := max(1, _PAIRS_AT_ONCE // candidates)):
        block = slice(start, start + size)
        left_out_KC = equal.excluded(block)
        if row_group is not None:
            left_out_KC |= row_group[block, None] == group_C
        found.append((~left_out_KC).sum(1))
    return torch.cat(found)


def text_hashes(ids: Tensor, lengths: np.ndarray, excluded: slice = slice(0, 0)) -> Tensor:
    """Return the hash of each of N token sequences, (N,) int64; ``ids`` contains the concatenated sequences.

    The hash is the sum of the mixed products of key and id over positions and of a term for the length, modulo 2^64
    (after multilinear hashing, Lemire and Kaser, 2014). Two
    different texts with a vocabulary below 2^18 collide with a probability below 2^-45. There is no synchronization
    with the device. The positions ``excluded`` of each sequence are ignored.
    """
    if excluded.stop > excluded.start:
        place = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        kept = np.flatnonzero((place < excluded.start) | (place >= excluded.stop))
        ids = ids[torch.from_numpy(kept).to(ids.device, non_blocking=True)]
        lengths = lengths - np.clip(lengths - excluded.start, 0, excluded.stop - excluded.start)
    text = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(text)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keys = _keys(-(-(int(lengths.max(initial=0)) + 1) // _KEYS_AT_ONCE))
    key, row = (torch.from_numpy(one).to(ids.device, non_blocking=True) for one in (keys[place + 1], text))
    start = torch.from_numpy(keys[0] * lengths.astype(np.int64)).to(ids.device, non_blocking=True)
    mixed = (ids + 1) * key
    return start.index_add(0, row, mixed ^ (mixed >> 31))


@cache
def _keys(blocks: int) -> np.ndarray:
    """Return `_KEYS_AT_ONCE` odd random integers for each block, which are the same in every process."""
    drawn = [
        np.random.default_rng((0x7E57, block)).integers(-(2**63), 2**63 - 1, _KEYS_AT_ONCE, dtype=np.int64)
        for block in range(blocks)
    ]
    keys: np.ndarray = np.concatenate(drawn) | 1
    return keys
