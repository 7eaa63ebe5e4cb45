"""Documents of the token store become a `SpanBatch`: spans are slices of ids, special tokens are put around them.

Everything random is a function of (seed, pass over the data, row of the store), so that a document gives the same
spans and masks in whichever process and batch it comes up, and new ones in the next pass.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from contracts import IGNORED_LABEL, InputError, Ragged, SpanBatch
from datamodules.masking import check_probability, mask_tokens
from datamodules.spans import Positive, Window, align_to_words, check_span_settings, sample_spans, tokens_needed

LONGEST_SPAN, SHORTEST_SPAN = 512, 16  # between which max_span=auto chooses
KEPT_PERCENT = 90  # of the documents, by max_span=auto
SPANS, MASKS = 0, 1  # two streams of random numbers: spans do not depend on whether tokens are masked


class Documents(Protocol):
    """What is read of the token store."""

    lengths: np.ndarray  # (documents,) int64

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> np.ndarray: ...


class SpanRule(NamedTuple):
    """How spans are drawn from a document; see `spans.sample_spans`."""

    anchors: int = 2
    positives: int = 2
    min_span: int = 32
    max_span: int = 512
    window: Window = "grid"
    positive: Positive = "nearby"

    def check(self) -> None:
        """InputError where no document could satisfy the rule."""
        check_span_settings(*self)

    @property
    def tokens_needed(self) -> int:
        """The shortest document that spans can be drawn from."""
        return tokens_needed(self.anchors, self.max_span, self.window)


def choose_max_span(lengths: np.ndarray, rule: SpanRule, content: int = LONGEST_SPAN) -> int:
    """The largest max_span in 16..512 that leaves 9 of 10 documents; ``lengths`` are those that 16 would leave.

    At most ``content``, the tokens that a sequence has room for. Documents count alike, however long: an epoch takes
    each of them once.
    """
    tokens_per_span = rule._replace(max_span=1).tokens_needed
    kept = -(-len(lengths) * KEPT_PERCENT // 100)
    length = int(np.sort(lengths)[len(lengths) - kept])
    return max(1, min(LONGEST_SPAN, content, max(SHORTEST_SPAN, length // tokens_per_span)))


class Specials(NamedTuple):
    """What a tokenizer puts around a sequence, and what masking has to know of its vocabulary."""

    before: np.ndarray  # ids before a sequence, e.g. [CLS] or <s>
    after: np.ndarray  # ids behind it, e.g. [SEP] or </s>
    flags: np.ndarray  # (vocabulary,) bool: never masked nor predicted
    mask_id: int | None

    @property
    def number(self) -> int:
        return len(self.before) + len(self.after)


def special_tokens(tokenizer: Any) -> Specials:
    """Found by encoding a word with and without special tokens, which every tokenizer can do.

    Raises InputError where the one does not stand inside the other.
    """
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    places = [at for at in range(len(whole) - len(plain) + 1) if whole[at : at + len(plain)] == plain]
    if not plain or not places:
        raise InputError(
            f"backbone: {type(tokenizer).__name__} encodes 'a' as {plain} and with special tokens as {whole}; wanted "
            "the former inside the latter. Take another backbone."
        )
    before, after = whole[: places[0]], whole[places[0] + len(plain) :]
    flags = np.zeros(len(tokenizer), dtype=bool)
    flags[tokenizer.all_special_ids] = True
    return Specials(np.array(before, np.int64), np.array(after, np.int64), flags, tokenizer.mask_token_id)


class SpanBatches:
    """``batches(pass_index, rows)`` is the `SpanBatch` of these rows of the store.

    ``starts_word`` says of every id whether it begins a word; with it spans split no word. Spans that would exceed
    ``max_length`` tokens with their special tokens lose their end.
    """

    def __init__(
        self,
        store: Documents,
        specials: Specials,
        rule: SpanRule,
        *,
        seed: int,
        max_length: int = 512,
        mlm_probability: float = 0.15,
        starts_word: np.ndarray | None = None,
    ) -> None:
        rule.check()
        check_probability(mlm_probability)
        if mlm_probability > 0 and specials.mask_id is None:
            raise InputError(
                "data.mlm_probability: the tokenizer of this backbone has no mask token, so nothing can be masked. "
                "Take a masked language model, or set data.mlm_probability=0 (and model.mlm_weight=0)."
            )
        if max_length - specials.number < rule.min_span:
            raise InputError(
                f"data.max_length: {max_length} tokens leave {max_length - specials.number} for a span beside the "
                f"special tokens; data.min_span wants {rule.min_span}."
            )
        self.store, self.specials, self.rule, self.seed = store, specials, rule, seed
        self.content = max_length - specials.number
        self.mlm_probability, self.starts_word = mlm_probability, starts_word

    def __call__(self, pass_index: int, rows: np.ndarray) -> SpanBatch:
        anchors, positives, masked, labels = [], [], [], []
        anchor_lengths, positive_lengths = [], []
        for row in rows.tolist():
            ids = self.store[row]
            spans = self._spans(ids, pass_index, row)
            anchor_ids = self._sequences(ids, spans[0], spans[1])
            anchors.append(anchor_ids)
            positives.append(self._sequences(ids, spans[2], spans[3]))
            anchor_lengths.append(spans[1])
            positive_lengths.append(spans[3])
            if self.mlm_probability > 0:
                masked_ids, document_labels = self._masked(anchor_ids, pass_index, row)
                masked.append(masked_ids)
                labels.append(document_labels)
        anchor_batch, positive_batch = self._ragged(anchors, anchor_lengths), self._ragged(positives, positive_lengths)
        return SpanBatch(
            anchors=anchor_batch,
            masked_ids=_joined(masked) if masked else anchor_batch.ids.clone(),
            labels=_joined(labels) if labels else torch.full_like(anchor_batch.ids, IGNORED_LABEL),
            positives=positive_batch,
            documents=np.asarray(rows, dtype=np.int64),
        )

    def _spans(
        self, ids: np.ndarray, pass_index: int, row: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Starts and lengths of the anchors and of the positives, cut to what fits beside the special tokens."""
        rule = self.rule
        rng = np.random.default_rng((self.seed, pass_index, row, SPANS))
        starts, lengths, near_starts, near_lengths = sample_spans(
            len(ids),
            rule.anchors,
            rule.positives,
            rule.min_span,
            rule.max_span,
            rng,
            window=rule.window,
            positive=rule.positive,
        )
        if self.starts_word is not None:
            longest = min(rule.max_span, self.content)
            starts, lengths = align_to_words(ids, starts, lengths, longest, self.starts_word)
            near_starts, near_lengths = align_to_words(ids, near_starts, near_lengths, longest, self.starts_word)
        return starts, np.minimum(lengths, self.content), near_starts, np.minimum(near_lengths, self.content)

    def _sequences(self, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(tokens,) int64: the spans one behind the other, each in its special tokens."""
        pieces: list[np.ndarray] = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            pieces += [self.specials.before, ids[start : start + length], self.specials.after]
        return np.concatenate(pieces)

    def _masked(self, anchor_ids: np.ndarray, pass_index: int, row: int) -> tuple[np.ndarray, np.ndarray]:
        flags = self.specials.flags
        rng = np.random.default_rng((self.seed, pass_index, row, MASKS))
        return mask_tokens(
            anchor_ids,
            flags[anchor_ids],
            rng,
            mask_id=self.specials.mask_id or 0,
            vocab_size=len(flags),
            probability=self.mlm_probability,
        )

    def _ragged(self, sequences: Sequence[np.ndarray], lengths: Sequence[np.ndarray]) -> Ragged:
        return Ragged(_joined(sequences), np.concatenate(lengths) + self.specials.number)


def _joined(arrays: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(arrays).astype(np.int64, copy=False))
