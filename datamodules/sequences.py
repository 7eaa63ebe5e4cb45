"""Stored ids as token sequences of a batch: cut where they are too long, special tokens put around them."""

import hashlib
from typing import Any

import numpy as np
import torch

from contracts import InputError, Ragged
from datamodules.row_store import RowStore
from datamodules.span_batches import special_tokens


class Sequences:
    """``sequences(store, rows, column)`` has the ids of ``tokenizer(text, truncation=True, max_length=max_length)``."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        specials = special_tokens(tokenizer)
        self.before, self.after = specials.before, specials.after
        self.longest = int(min(max_length, tokenizer.model_max_length))
        self.room = self.longest - specials.number
        self.keeps_end = tokenizer.truncation_side == "left"
        if self.room < 1:
            raise InputError(
                f"data.max_length={max_length}: {specials.number} special tokens stand around a text, which leaves no "
                f"token of it. Wanted {specials.number + 1} or more; 32 to 128 are usual."
            )

    def __call__(self, store: RowStore, rows: np.ndarray, column: int) -> Ragged:
        """(N,) rows -> N sequences."""
        starts, ends = store.bounds(rows, column)
        kept = np.minimum(ends - starts, self.room)
        starts = ends - kept if self.keeps_end else starts
        lengths = kept + (len(self.before) + len(self.after))
        lasts = np.cumsum(lengths)
        firsts = lasts - lengths
        ids = np.empty(int(lengths.sum()), np.int64)
        ids[firsts[:, None] + np.arange(len(self.before))] = self.before
        ids[lasts[:, None] - np.arange(len(self.after), 0, -1)] = self.after
        within = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
        ids[np.repeat(firsts + len(self.before), kept) + within] = store.ids[np.repeat(starts, kept) + within]
        return Ragged(torch.from_numpy(ids), lengths)


def text_groups(store: RowStore, rows: np.ndarray, column: int) -> torch.Tensor:
    """(N,) rows -> (N,) int64, equal where the whole texts in this column are, on any process."""
    digests = (hashlib.blake2b(store.text(int(row), column).tobytes(), digest_size=8).digest() for row in rows)
    return torch.from_numpy(np.frombuffer(b"".join(digests), "<i8").astype(np.int64))
