"""Batches of spans: slices of stored token ids with special tokens and MLM masks.

All random numbers are a function of (seed, pass over the data, row of the store). A document therefore has the same
spans and masks in any process and batch, and new ones in the next pass.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged, SpanBatch
from contrastive_encoders.datamodules.data_configs import MaskStrategy
from contrastive_encoders.datamodules.sampling.spans import SpanRule, Spans, align_to_words, sample_spans
from contrastive_encoders.datamodules.store.token_store import TokenStore
from contrastive_encoders.datamodules.store.tokenizer import SpecialTokens

LONGEST_SPAN, SHORTEST_SPAN = 512, 16  # limits for max_span=auto
KEPT_PERCENT = 90  # share of the documents that max_span=auto keeps
SPANS, MASKS = 0, 1  # two random streams, so that spans do not depend on masking


def choose_max_span(lengths: np.ndarray, rule: SpanRule, content: int = LONGEST_SPAN) -> int:
    """Return the largest max_span, from 16 to 512 and at most ``content``, for which 9 of 10 documents are long enough.

    All documents have equal weight regardless of their length, since an epoch uses each document once.

    Args:
        lengths: Lengths of the documents that are long enough for a max_span of 16.
        content: Number of tokens that fit into a sequence.
    """
    tokens_per_span = rule._replace(max_span=1).tokens_needed
    kept = -(-len(lengths) * KEPT_PERCENT // 100)
    length = int(np.sort(lengths)[len(lengths) - kept])
    return max(1, min(LONGEST_SPAN, content, max(SHORTEST_SPAN, length // tokens_per_span)))


class SpanBatchBuilder:
    """Builder of span batches: ``build(pass_index, rows)`` returns the `SpanBatch` of these rows of the store.

    ``starts_word`` contains for every id whether it begins a word. If it is given, spans do not split words. Spans that
    exceed ``max_length`` tokens, including special tokens, are truncated at the end. Without a mask token nothing is
    masked; the objective checks whether it needs masks.
    """

    def __init__(
        self,
        store: TokenStore,
        specials: SpecialTokens,
        rule: SpanRule,
        *,
        seed: int,
        max_length: int,
        mlm_probability: float,
        mask_strategy: MaskStrategy = "bert",
        starts_word: np.ndarray | None = None,
    ) -> None:
        rule.check()
        if max_length - specials.number < rule.min_span:
            raise InputError(
                key="data.max_length",
                value=max_length,
                expected=f"at least {rule.min_span + specials.number} tokens, for data.min_span={rule.min_span} "
                f"and {specials.number} special tokens",
            )
        self.store, self.specials, self.rule, self.seed = store, specials, rule, seed
        self.content = max_length - specials.number
        self.mlm_probability = 0.0 if specials.mask_id is None else mlm_probability
        self.mask_strategy, self.starts_word = mask_strategy, starts_word

    def build(self, pass_index: int, rows: np.ndarray) -> SpanBatch:
        anchors, positives, masked, labels = [], [], [], []
        anchor_lengths, positive_lengths = [], []
        for row in rows.tolist():
            ids = self.store.text(row)
            spans = self._spans(ids, pass_index, row)
            anchor_ids = self._sequences(ids, spans.anchor_starts, spans.anchor_lengths)
            anchors.append(anchor_ids)
            positives.append(self._sequences(ids, spans.positive_starts, spans.positive_lengths))
            anchor_lengths.append(spans.anchor_lengths)
            positive_lengths.append(spans.positive_lengths)
            if self.mlm_probability > 0:
                masked_ids, document_labels = self._mask(anchor_ids, pass_index, row)
                masked.append(masked_ids)
                labels.append(document_labels)
        anchor_batch, positive_batch = self._ragged(anchors, anchor_lengths), self._ragged(positives, positive_lengths)
        all_labels = _concatenate(labels) if labels else torch.full_like(anchor_batch.ids, IGNORED_LABEL)
        return SpanBatch(
            anchors=anchor_batch,
            masked_ids=_concatenate(masked) if masked else anchor_batch.ids.clone(),
            labels=all_labels,
            positives=positive_batch,
            rows=np.asarray(rows, dtype=np.int64),
            predicted=np.flatnonzero(all_labels.numpy() != IGNORED_LABEL),
        )

    def truncated_fraction(self, rows: np.ndarray) -> float:
        """Return the fraction of tokens that truncation removes from the spans of these rows, measured in the first
        pass over the data.
        """
        drawn = cut = 0
        if self.rule.max_span > self.content:
            for row in rows.tolist():
                rng = np.random.default_rng((self.seed, 0, row, SPANS))
                spans = sample_spans(len(self.store.text(row)), self.rule, rng)
                lengths = np.concatenate([spans.anchor_lengths, spans.positive_lengths])
                drawn, cut = drawn + lengths.sum(), cut + np.maximum(lengths - self.content, 0).sum()
        return float(cut / max(1, drawn))

    def places(self, pass_index: int, row: int) -> tuple[int, Spans]:
        """Return the length of a document in tokens, and the positions of its spans in the pass ``pass_index``."""
        ids = self.store.text(row)
        return len(ids), self._spans(ids, pass_index, row)

    def _spans(self, ids: np.ndarray, pass_index: int, row: int) -> Spans:
        """Sample the spans of anchors and positives, and truncate them to leave room for special tokens."""
        rng = np.random.default_rng((self.seed, pass_index, row, SPANS))
        starts, lengths, near_starts, near_lengths = sample_spans(len(ids), self.rule, rng)
        if self.starts_word is not None:
            longest = min(self.rule.max_span, self.content)
            starts, lengths = align_to_words(ids, starts, lengths, longest, self.starts_word)
            near_starts, near_lengths = align_to_words(ids, near_starts, near_lengths, longest, self.starts_word)
        return Spans(starts, np.minimum(lengths, self.content), near_starts, np.minimum(near_lengths, self.content))

    def _sequences(self, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the spans, each surrounded by special tokens, concatenated to one array, (tokens,) int64."""
        pieces: list[np.ndarray] = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            pieces += [self.specials.before, ids[start : start + length], self.specials.after]
        return np.concatenate(pieces)

    def _mask(self, anchor_ids: np.ndarray, pass_index: int, row: int) -> tuple[np.ndarray, np.ndarray]:
        flags = self.specials.flags
        return mask_tokens(
            anchor_ids,
            flags[anchor_ids],
            np.random.default_rng((self.seed, pass_index, row, MASKS)),
            mask_id=cast(int, self.specials.mask_id),
            vocab_size=len(flags),
            probability=self.mlm_probability,
            how=self.mask_strategy,
        )

    def _ragged(self, sequences: Sequence[np.ndarray], lengths: Sequence[np.ndarray]) -> Ragged:
        return Ragged(_concatenate(sequences), np.concatenate(lengths) + self.specials.number)


def mask_tokens(
    ids: np.ndarray,
    special: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    probability: float,
    how: MaskStrategy = "bert",
) -> tuple[np.ndarray, np.ndarray]:
    """Mask tokens for masked language modeling.

    Each token that is not special is predicted independently with ``probability``. Of the predicted tokens, 80 % are
    replaced by the mask, 10 % by a token drawn uniformly from the vocabulary, and 10 % are unchanged (Devlin et al.
    2019, section 3.1). With ``how="all"``, all of them are replaced by the mask.

    Args:
        ids: (n,) token ids.
        special: (n,) bool flags of special tokens.

    Returns:
        The corrupted ids and the labels, (n,) int64 each. Labels are the original ids of predicted tokens and
        IGNORED_LABEL elsewhere.
    """
    ids = ids.astype(np.int64, copy=False)
    # Given that a draw is below the probability, it is uniform there, so it also determines the kind of corruption
    draws = rng.random(len(ids))
    draws[special] = 1.0
    masked = ids.copy()
    masked[draws < (1.0 if how == "all" else 0.8) * probability] = mask_id
    if how == "all":
        return masked, np.where(draws < probability, ids, IGNORED_LABEL)
    random = np.flatnonzero((draws >= 0.8 * probability) & (draws < 0.9 * probability))
    masked[random] = rng.integers(vocab_size, size=len(random))
    return masked, np.where(draws < probability, ids, IGNORED_LABEL)


def _concatenate(arrays: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(arrays).astype(np.int64, copy=False))
