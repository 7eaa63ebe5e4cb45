"""Batches of spans: slices of stored token ids with special tokens and MLM masks.

Everything random is a function of (seed, pass over the data, row of the store), so that a document gives the same
spans and masks in whichever process and batch it comes up, and new ones in the next pass.
"""

from collections.abc import Sequence
from typing import Protocol, cast, get_args

import numpy as np
import torch

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged, SpanBatch
from contrastive_encoders.datamodules.data_configs import MaskHow
from contrastive_encoders.datamodules.sampling.spans import SpanRule, Spans, align_to_words, sample_spans
from contrastive_encoders.datamodules.store.tokenizer import SpecialTokens

LONGEST_SPAN, SHORTEST_SPAN = 512, 16  # between which max_span=auto chooses
KEPT_PERCENT = 90  # of the documents, by max_span=auto
SPANS, MASKS = 0, 1  # two streams of random numbers: spans do not depend on whether tokens are masked


class Documents(Protocol):
    """What is read of the token store."""

    def text(self, row: int, /) -> np.ndarray: ...


def choose_max_span(lengths: np.ndarray, rule: SpanRule, content: int = LONGEST_SPAN) -> int:
    """The largest max_span in 16..512 that leaves 9 of 10 documents; ``lengths`` are those that 16 would leave.

    At most ``content``, the tokens that a sequence has room for. Documents count alike, however long: an epoch takes
    each of them once.
    """
    tokens_per_span = rule._replace(max_span=1).tokens_needed
    kept = -(-len(lengths) * KEPT_PERCENT // 100)
    length = int(np.sort(lengths)[len(lengths) - kept])
    return max(1, min(LONGEST_SPAN, content, max(SHORTEST_SPAN, length // tokens_per_span)))


class SpanBatches:
    """``batches(pass_index, rows)`` is the `SpanBatch` of these rows of the store.

    ``starts_word`` says of every id whether it begins a word; with it spans split no word. Spans that would exceed
    ``max_length`` tokens with their special tokens lose their end. Without a mask token nothing is masked: whether
    that is needed the objective says.
    """

    def __init__(
        self,
        store: Documents,
        specials: SpecialTokens,
        rule: SpanRule,
        *,
        seed: int,
        max_length: int,
        mlm_probability: float,
        mask_how: MaskHow = "bert",
        starts_word: np.ndarray | None = None,
    ) -> None:
        rule.check()
        check_probability(mlm_probability)
        if max_length - specials.number < rule.min_span:
            raise InputError(
                f"data.max_length: {max_length} tokens leave {max_length - specials.number} for a span beside the "
                f"special tokens; data.min_span wants {rule.min_span}."
            )
        self.store, self.specials, self.rule, self.seed = store, specials, rule, seed
        self.content = max_length - specials.number
        if mask_how not in get_args(MaskHow):
            raise InputError(f"data.mask_how={mask_how!r} is unknown; choose {' or '.join(get_args(MaskHow))}.")
        self.mlm_probability = 0.0 if specials.mask_id is None else mlm_probability
        self.mask_how, self.starts_word = mask_how, starts_word

    def __call__(self, pass_index: int, rows: np.ndarray) -> SpanBatch:
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
                masked_ids, document_labels = self._masked(anchor_ids, pass_index, row)
                masked.append(masked_ids)
                labels.append(document_labels)
        anchor_batch, positive_batch = self._ragged(anchors, anchor_lengths), self._ragged(positives, positive_lengths)
        all_labels = _joined(labels) if labels else torch.full_like(anchor_batch.ids, IGNORED_LABEL)
        return SpanBatch(
            anchors=anchor_batch,
            masked_ids=_joined(masked) if masked else anchor_batch.ids.clone(),
            labels=all_labels,
            positives=positive_batch,
            rows=np.asarray(rows, dtype=np.int64),
            predicted=np.flatnonzero(all_labels.numpy() != IGNORED_LABEL),
        )

    def share_behind(self, rows: np.ndarray) -> float:
        """Of the tokens of the spans of these rows in the first pass, how many are behind the end of a sequence."""
        drawn = cut = 0
        if self.rule.max_span > self.content:
            for row in rows.tolist():
                rng = np.random.default_rng((self.seed, 0, row, SPANS))
                spans = sample_spans(len(self.store.text(row)), self.rule, rng)
                lengths = np.concatenate([spans.anchor_lengths, spans.positive_lengths])
                drawn, cut = drawn + lengths.sum(), cut + np.maximum(lengths - self.content, 0).sum()
        return float(cut / max(1, drawn))

    def places(self, pass_index: int, row: int) -> tuple[int, Spans]:
        """The tokens of a document, and where its spans lie in this pass."""
        ids = self.store.text(row)
        return len(ids), self._spans(ids, pass_index, row)

    def _spans(self, ids: np.ndarray, pass_index: int, row: int) -> Spans:
        """Of the anchors and of the positives, cut to what fits beside the special tokens."""
        rng = np.random.default_rng((self.seed, pass_index, row, SPANS))
        starts, lengths, near_starts, near_lengths = sample_spans(len(ids), self.rule, rng)
        if self.starts_word is not None:
            longest = min(self.rule.max_span, self.content)
            starts, lengths = align_to_words(ids, starts, lengths, longest, self.starts_word)
            near_starts, near_lengths = align_to_words(ids, near_starts, near_lengths, longest, self.starts_word)
        return Spans(starts, np.minimum(lengths, self.content), near_starts, np.minimum(near_lengths, self.content))

    def _sequences(self, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(tokens,) int64: the spans one behind the other, each in its special tokens."""
        pieces: list[np.ndarray] = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            pieces += [self.specials.before, ids[start : start + length], self.specials.after]
        return np.concatenate(pieces)

    def _masked(self, anchor_ids: np.ndarray, pass_index: int, row: int) -> tuple[np.ndarray, np.ndarray]:
        flags = self.specials.flags
        return mask_tokens(
            anchor_ids,
            flags[anchor_ids],
            np.random.default_rng((self.seed, pass_index, row, MASKS)),
            mask_id=cast(int, self.specials.mask_id),
            vocab_size=len(flags),
            probability=self.mlm_probability,
            how=self.mask_how,
        )

    def _ragged(self, sequences: Sequence[np.ndarray], lengths: Sequence[np.ndarray]) -> Ragged:
        return Ragged(_joined(sequences), np.concatenate(lengths) + self.specials.number)


def mask_tokens(
    ids: np.ndarray,
    special: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    probability: float,
    how: MaskHow = "bert",
) -> tuple[np.ndarray, np.ndarray]:
    """(n,) ids and (n,) bool flags of special tokens -> corrupted ids and labels, (n,) int64 each.

    Every other token is predicted with ``probability``, independently: 80 % of those become the mask, 10 % a token
    drawn uniformly from the whole vocabulary, 10 % stay (Devlin et al. 2019, section 3.1); with ``how="all"`` all of
    them become the mask. ``labels`` hold the original id where a token is predicted, IGNORED_LABEL elsewhere.
    """
    check_probability(probability)
    ids = ids.astype(np.int64, copy=False)
    # Given that a number is below the probability, it is uniform there: it says the kind of corruption as well
    draws = rng.random(len(ids))
    draws[special] = 1.0
    masked = ids.copy()
    masked[draws < (1.0 if how == "all" else 0.8) * probability] = mask_id
    if how == "all":
        return masked, np.where(draws < probability, ids, IGNORED_LABEL)
    random = np.flatnonzero((draws >= 0.8 * probability) & (draws < 0.9 * probability))
    masked[random] = rng.integers(vocab_size, size=len(random))
    return masked, np.where(draws < probability, ids, IGNORED_LABEL)


def check_probability(probability: float) -> None:
    """InputError unless it is a share of the tokens that leaves something to predict from."""
    if not 0 <= probability < 1:
        raise InputError(
            f"data.mlm_probability: wanted a share of the tokens in [0, 1), got {probability}; 0 switches MLM off."
        )


def _joined(arrays: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(arrays).astype(np.int64, copy=False))
