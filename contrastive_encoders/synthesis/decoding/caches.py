"""Key-value caches for decoding a batch of right-aligned sequences (rows) that join and leave the batch at any time.

All rows write their next token into column ``time``. The prompt of a new row is placed in the columns before ``time``,
so older and longer rows begin further left. No step copies the cache: the model attends to a view that begins at the
first column of the longest row. When the buffer is full, the window moves back to its beginning. Encoder states are
stored in a second cache of the same kind that never advances.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

# Axes: R rows, H heads, T columns (tokens), D head width
SLACK = 64  # columns written before the window moves; the cost of the copy is spread over this many steps


class KeyValues(NamedTuple):
    """Cached attention keys and values of one layer."""

    keys_RHTD: Tensor
    values_RHTD: Tensor


class PrefillOutput(NamedTuple):
    """Keys, values, and logits of a forward pass over left-padded texts."""

    layers: list[KeyValues]
    lengths_R: np.ndarray  # int64
    logits_RV: Tensor  # for the token after each text
    read: "CrossAttentionStates | None" = (
        None  # encoder states of an encoder-decoder; ``layers`` are then the decoder's
    )


class CrossAttentionStates(NamedTuple):
    """Left-padded keys and values of cross-attention, computed from the encoder's states."""

    layers: list[KeyValues]
    lengths_R: np.ndarray


class _Layer(CacheLayerMixin):
    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, rows: "RowCache", keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.rows, self.keys, self.values = rows, keys, values
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing, because the buffers are allocated by `RowCache`."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        rows, begin, time = key_states.shape[0], self.rows.begin, self.rows.time
        self.keys[:rows, :, time] = key_states[:, :, 0]
        self.values[:rows, :, time] = value_states[:, :, 0]
        return self.keys[:rows, :, begin : time + 1], self.values[:rows, :, begin : time + 1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.rows.time - self.rows.begin

    def get_max_length(self) -> int:
        return -1


class RowCache(Cache):
    """Key-value cache with preallocated rows and columns; only the first ``rows`` rows are in use."""

    layers: list[_Layer]  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.rows = 0
        self.begin = 0  # the first column that any row uses
        self.time = 0  # the column that the next step writes
        self.starts_R = np.zeros(0, dtype=np.int64)  # first column of each row

    def lengths(self) -> np.ndarray:
        """Return the number of cached tokens of each of the R rows, (R,)."""
        return self.time - self.starts_R[: self.rows]

    def join(self, shared: PrefillOutput, source: np.ndarray, target: np.ndarray) -> None:
        """Copy the keys and values of the rows ``source`` of a forward pass into the rows ``target`` of this cache."""
        self.place(shared.layers, shared.lengths_R, source, target)

    def real(self, more: int = 0) -> Tensor:
        """Return the attention mask of the R rows over the T columns in use, (R, T) bool: False for padding.

        ``more`` columns are appended that belong to all rows.
        """
        device = self.layers[0].keys.device
        starts_R1 = torch.from_numpy(self.starts_R[: self.rows] - self.begin).to(device)[:, None]
        return torch.arange(self.time - self.begin + more, device=device) >= starts_R1

    def window(self) -> Cache:
        """Return a cache that is a view of the rows and columns in use, without copying."""
        used = (slice(0, self.rows), slice(None), slice(self.begin, self.time))
        return Cache(layers=[_Layer(self, layer.keys[used], layer.values[used]) for layer in self.layers])

    def place(self, layers: Sequence[KeyValues], lengths: np.ndarray, source: np.ndarray, target: np.ndarray) -> None:
        """Copy the rows ``source`` of left-padded ``layers`` into the rows ``target`` of this cache, so that each
        copied row ends in the column before ``time``.
        """
        columns = layers[0].keys_RHTD.shape[2]
        self._reserve(max(self.rows, int(target.max()) + 1), columns, layers)
        self.rows = max(self.rows, int(target.max()) + 1)
        self.starts_R[target] = self.time - lengths[source]
        self._settle()
        device = layers[0].keys_RHTD.device
        to, of = torch.from_numpy(target).to(device), torch.from_numpy(source).to(device)
        for layer, prompts in zip(self.layers, layers, strict=True):
            layer.keys[to, :, self.time - columns : self.time] = prompts.keys_RHTD[of]
            layer.values[to, :, self.time - columns : self.time] = prompts.values_RHTD[of]

    def move(self, source: np.ndarray, target: np.ndarray, rows: int) -> None:
        """Copy the rows ``source`` over the rows ``target``, then keep only the first ``rows`` rows."""
        if len(source):
            self.starts_R[target] = self.starts_R[source]
            device = self.layers[0].keys.device
            to, of = torch.from_numpy(target).to(device), torch.from_numpy(source).to(device)
            for layer in self.layers:
                layer.keys[to, :, self.begin : self.time] = layer.keys[of, :, self.begin : self.time]
                layer.values[to, :, self.begin : self.time] = layer.values[of, :, self.begin : self.time]
        self.rows = rows
        self._settle()

    def advance(self) -> None:
        """Move ``time``, the column of the next token, one column to the right, and make space if the buffers are full.
        Call this after the column ``time`` has been written.
        """
        self.time += 1
        used = self.time - self.begin
        if self.time < self._columns():
            return
        if self.time - used < SLACK // 2:  # rows outgrew the buffer: moving would gain few or no columns
            own = [KeyValues(layer.keys, layer.values) for layer in self.layers]
            self._grow(self.rows, used + SLACK, own)
        else:
            self._shift(used)

    def _settle(self) -> None:
        self.begin = int(self.starts_R[: self.rows].min()) if self.rows else self.time

    def _columns(self) -> int:
        return int(self.layers[0].keys.shape[2]) if self.layers else 0

    def _reserve(self, rows: int, columns: int, like: Sequence[KeyValues]) -> None:
        """Enlarge or shift the buffers, so that they contain at least ``rows`` rows, and ``columns`` columns before
        column ``time``.
        """
        used = self.time - self.begin
        wanted = max(used, columns)
        if not self.layers or rows > len(self.starts_R) or wanted + 1 > self._columns():
            self._grow(rows, wanted + SLACK, like)
        if self.time < columns:
            self._shift(wanted)

    def _grow(self, rows: int, columns: int, like: Sequence[KeyValues]) -> None:
        # A quarter more than requested, so that a batch that fills up row by row is not copied each time
        rows = max(len(self.starts_R), rows + rows // 4) if rows > len(self.starts_R) else max(rows, self.rows)
        used = self.time - self.begin
        fresh = not self.layers
        for place, layer in enumerate(like):
            buffers = [now.new_zeros(rows, now.shape[1], columns, now.shape[3]) for now in layer]
            if fresh:
                self.layers.append(_Layer(self, *buffers))
                continue
            old = self.layers[place]
            for buffer, now in zip(buffers, (old.keys, old.values), strict=True):
                buffer[: self.rows, :, :used] = now[: self.rows, :, self.begin : self.time]
            old.keys, old.values = buffers
        starts_R = np.zeros(rows, dtype=np.int64)
        starts_R[: self.rows] = self.starts_R[: self.rows] - self.begin
        self.starts_R, self.begin, self.time = starts_R, 0, used

    def _shift(self, time: int) -> None:
        """Shift the columns in use within the buffers, so that the last of them is the one before column ``time``."""
        used = self.time - self.begin
        for layer in self.layers:
            for buffer in (layer.keys, layer.values):
                window = buffer[: self.rows, :, self.begin : self.time].clone()
                buffer[: self.rows, :, time - used : time] = window
        self.starts_R[: self.rows] += time - self.time
        self.begin, self.time = time - used, time


class EncoderDecoderRowCache(RowCache):
    """Key-value caches of an encoder-decoder model: this object caches self-attention, and its attribute ``read``
    caches the cross-attention of each row.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read = RowCache()

    def join(self, shared: PrefillOutput, source: np.ndarray, target: np.ndarray) -> None:
        super().join(shared, source, target)
        assert shared.read is not None
        self.read.place(shared.read.layers, shared.read.lengths_R, source, target)

    def move(self, source: np.ndarray, target: np.ndarray, rows: int) -> None:
        super().move(source, target, rows)
        self.read.move(source, target, rows)
