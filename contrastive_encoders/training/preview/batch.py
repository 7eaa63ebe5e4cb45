"""Texts of a batch with their roles (anchor, positive, negative), masked tokens, and duplicates.

For span batches (DeCLUTR), the hard negatives of an anchor are the spans drawn around the other anchors of its
document, and the easy ones are spans of other documents. For triplets, the third column is the hard negative, and the
positives of other rows are the easy ones.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from contrastive_encoders.core import IGNORED_LABEL, SpanBatch

EASY_SHOWN = 2


class Piece(NamedTuple):
    """Text of one or more consecutive tokens. ``masking`` is the masking operation on the tokens (mask, random, kept),
    or empty.
    """

    text: str
    masking: str = ""


class RolePiece(NamedTuple):
    role: str  # anchor, positive, hard negative, easy negative, text, source, target
    pieces: list[Piece]
    tokens: int

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Example(NamedTuple):
    name: str
    parts: list[RolePiece]


class RoleSequences(NamedTuple):
    """Token ids of all sequences with one role."""

    role: str
    ids: list[np.ndarray]

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)

    def duplicates(self) -> int:
        """Return the number of sequences that are equal to an earlier sequence."""
        counts = Counter(ids.tobytes() for ids in self.ids)
        return sum(count - 1 for count in counts.values())


def sequences_of(batch: Any) -> list[RoleSequences]:
    """Return the sequences of a batch, grouped by role in the order of the batch's fields."""
    return [RoleSequences(role, part.split()) for role, part in batch.roles().items() if part is not None]


def examples_of(batch: Any, tokenizer: Any, number: int) -> Iterator[Example]:
    """Yield the first ``number`` rows of a batch, each with its positives and negatives.

    A batch class may have the methods ``describe_row`` and ``easy_negatives``, as those in ``core.batches``.
    """
    if isinstance(batch, SpanBatch):
        yield from _spans(batch, tokenizer, number)
        return
    columns = sequences_of(batch)
    describe, easy_negatives = getattr(batch, "describe_row", None), getattr(batch, "easy_negatives", None)
    for row in _rows(batch, number):
        parts = [
            _part(one.role, ids, tokenizer)
            for one in columns
            for place, ids in enumerate(_of_row(one.ids, row, len(batch.rows)))
            if one.role != "hard negative" or not _is_filler(batch, row, place)
        ]
        if easy_negatives:
            texts, others = easy_negatives(row)
            ids = texts.split()
            parts += [_part("easy negative", ids[other], tokenizer) for other in others[:EASY_SHOWN]]
        names = [f"{_part_of(batch, row)}row {int(batch.rows[row])}", describe(row) if describe else ""]
        yield Example(", ".join(filter(None, names)), parts)


def _rows(batch: Any, number: int) -> list[int]:
    """Return the indices of the first ``number`` rows of a batch. If the batch mixes several data sources, the rows
    alternate between sources.
    """
    rows = range(len(batch.rows))
    if isinstance(batch.part, np.ndarray):
        by_part = [np.flatnonzero(batch.part == name) for name in np.unique(batch.part)]
        turns = {row: turn for own in by_part for turn, row in enumerate(own.tolist())}
        return sorted(rows, key=turns.__getitem__)[:number]
    return list(rows[:number])


def _part_of(batch: Any, row: int) -> str:
    part = batch.part[row] if isinstance(batch.part, np.ndarray) else batch.part
    return f"{part}, " if part else ""


def _of_row(ids: list[np.ndarray], row: int, rows: int) -> list[np.ndarray]:
    """Return the sequences of one row, given all sequences of a role. Each row has the same number of sequences."""
    each = len(ids) // rows
    return ids[row * each : (row + 1) * each]


def _is_filler(batch: Any, row: int, place: int) -> bool:
    """Return whether the hard negative at index ``place`` of a row is an empty text that only serves as padding."""
    fillers = getattr(batch, "fillers", None)  # only triplets have them
    return fillers is not None and bool(fillers.reshape(len(batch.rows), -1)[row, place])


def _spans(batch: SpanBatch, tokenizer: Any, number: int) -> Iterator[Example]:
    documents = len(batch.rows)
    anchors, positives = batch.anchors.split(), batch.positives.split()
    masked = np.split(batch.masked_ids.numpy(), np.cumsum(batch.anchors.lengths)[:-1])
    labels = np.split(batch.labels.numpy(), np.cumsum(batch.anchors.lengths)[:-1])
    each, around = len(anchors) // documents, len(positives) // len(anchors)
    for anchor in range(min(number, len(anchors))):
        document = anchor // each
        own = range(anchor * around, (anchor + 1) * around)
        near = [
            p
            for other in range(document * each, (document + 1) * each)
            if other != anchor
            for p in range(other * around, (other + 1) * around)
        ]
        far = [p for p in range(len(positives)) if p // (each * around) != document][:: max(1, each * around)]
        parts = [
            RolePiece(
                "anchor", pieces_of(anchors[anchor], masked[anchor], labels[anchor], tokenizer), len(anchors[anchor])
            )
        ]
        for role, chosen in (("positive", own), ("hard negative", near), ("easy negative", far[:EASY_SHOWN])):
            parts += [_part(role, positives[place], tokenizer) for place in chosen]
        name = f"{_part_of(batch, document)}document {int(batch.rows[document])}"
        yield Example(f"{name}, anchor {anchor % each + 1} of {each}", parts)


def pieces_of(ids: np.ndarray, masked: np.ndarray, labels: np.ndarray, tokenizer: Any) -> list[Piece]:
    """Split an anchor into text pieces. Each token that MLM predicts is a separate piece, which also shows a random
    replacement.
    """
    pieces, run = list[Piece](), list[int]()
    for token, seen, label in zip(ids.tolist(), masked.tolist(), labels.tolist(), strict=True):
        if label == IGNORED_LABEL:
            run.append(token)
            continue
        if run:
            pieces.append(Piece(tokenizer.decode(run)))
            run = []
        kind = "mask" if seen == tokenizer.mask_token_id else "kept" if seen == token else "random"
        word = tokenizer.decode([token])
        pieces.append(Piece(word if kind != "random" else f"{word}→{tokenizer.decode([seen])}", kind))
    return [*pieces, *([Piece(tokenizer.decode(run))] if run else [])]


def _part(role: str, ids: np.ndarray, tokenizer: Any) -> RolePiece:
    return RolePiece(role, [Piece(tokenizer.decode(ids.tolist()))], len(ids))


def masking(batch: SpanBatch, mask: int) -> dict[str, float]:
    """Return the fraction of the anchors' tokens that MLM predicts (``predicted``), and the fractions of the predicted
    tokens that are masked, kept, or replaced in the input.

    Args:
        mask: the id of the mask token.
    """
    predicted = (batch.labels != IGNORED_LABEL).numpy()
    original, seen = batch.anchors.ids.numpy()[predicted], batch.masked_ids.numpy()[predicted]
    masked = float((seen == mask).mean()) if len(seen) else 0.0
    kept = float((original == seen).mean()) if len(seen) else 0.0
    replaced = float(((original != seen) & (seen != mask)).mean()) if len(seen) else 0.0
    return {"predicted": float(predicted.mean()), "masked": masked, "kept": kept, "replaced": replaced}


def most_frequent(batches: Sequence[Any], tokenizer: Any) -> tuple[str, int] | None:
    """Return the text that occurs most often within a single batch, in any role, and its count; None if no text is
    repeated.
    """
    counts, ids_of = Counter[bytes](), dict[bytes, np.ndarray]()
    for batch in batches:
        own = Counter[bytes]()
        for ids in (ids for one in sequences_of(batch) for ids in one.ids):
            ids_of.setdefault(ids.tobytes(), ids)
            own[ids.tobytes()] += 1
        counts |= own
    [(text, count)] = counts.most_common(1)
    return (tokenizer.decode(ids_of[text].tolist()), count) if count > 1 else None
