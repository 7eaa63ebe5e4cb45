"""Layout of chunks, computed on the host so that training steps do not wait for the GPU.

The layout of a chunk depends only on its lengths, which are known on the host. Reading a value from a device would wait
until all queued operations are finished, and then the device would wait for the host.
"""

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import masking_utils

from contrastive_encoders.encoders.kernels.chunks import Chunk, on_device


class TokenIndices(NamedTuple):
    """Indices of the M selected tokens in one chunk of a batch, ordered by row and column."""

    rows_M: Tensor
    columns_M: Tensor
    flat_M: Tensor  # index in the concatenated sequences of the batch

    def of(self, states: Tensor) -> Tensor:
        """Select the states of these M tokens from the states of the chunk: (B, T, ...) -> (M, ...)."""
        return states[self.rows_M, self.columns_M]


def places_in_chunks(
    flat: np.ndarray, lengths: np.ndarray, chunks: Sequence[Chunk], device: torch.device
) -> list[TokenIndices]:
    """Convert the indices of selected tokens in a ragged batch to indices in the chunks, on the host."""
    ends = np.cumsum(lengths)
    sequence = np.searchsorted(ends, flat, side="right")
    chunk_of, row_of = np.empty_like(lengths), np.empty_like(lengths)
    for number, chunk in enumerate(chunks):
        chunk_of[chunk.sequences], row_of[chunk.sequences] = number, np.arange(len(chunk.sequences))
    rows, columns, chunk_M = row_of[sequence], flat - (ends - lengths)[sequence], chunk_of[sequence]
    order = np.lexsort((columns, rows, chunk_M))
    together = on_device(np.stack([rows, columns, flat])[:, order], device)
    return [TokenIndices(*part) for part in together.split(np.bincount(chunk_M, minlength=len(chunks)).tolist(), dim=1)]


def prefetch_to_cpu(found: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield copies of tensors on the host, where each copy is made while the next tensor is being computed.

    The device thus always has queued work.
    """
    under_way = deque[tuple[Tensor, torch.cuda.Event | None]]()
    for values in found:
        under_way.append(_sent_home(values))
        if len(under_way) > 1:
            yield _arrived(*under_way.popleft())
    while under_way:
        yield _arrived(*under_way.popleft())


def _sent_home(values: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    if values.device.type != "cuda":
        return values.cpu(), None
    home = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)
    sent = torch.cuda.Event()
    sent.record()
    return home, sent


def _arrived(home: Tensor, sent: torch.cuda.Event | None) -> Tensor:
    if sent is not None:
        sent.synchronize()
    return home


@contextlib.contextmanager
def skip_mask_inspection() -> Iterator[None]:
    """Context manager in which transformers always builds the attention mask, without inspecting its values.

    Otherwise, transformers first checks whether there is any padding, which waits for the device in every forward pass.
    """
    module: Any = masking_utils
    before, module.is_tracing = module.is_tracing, lambda *_: True
    try:
        yield
    finally:
        module.is_tracing = before
