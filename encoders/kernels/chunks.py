"""Division of a batch into chunks, which determines the amount of padding, the memory use, and the possible batch size.

Sequences are sorted by length. A new chunk starts when a chunk would exceed the token budget, which limits memory, or
would contain more padding than another chunk costs, which limits waste. With recomputation, a chunk keeps only its
inputs and outputs for the backward pass (GradCache of Gao et al., 2021, implemented with activation checkpointing). A
contrastive batch of any size then needs the memory of one chunk and has the gradient of the entire batch.

Shape letters: B sequences of a chunk, T tokens of its longest sequence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrastive_encoders.core import Ragged
from contrastive_encoders.core.runtime.malloc import heap

# Padding that costs as much as one more chunk. Measured on a CPU (flat from 32 to 128) and on an H200.
CHUNK_COST_TOKENS = {"cpu": 64}
CHUNK_COST_ELSEWHERE = 8_192
LAYERS = "layers"  # value of ``activation_checkpointing``, see activation_checkpointing.py


class Chunk(NamedTuple):
    sequences: np.ndarray  # (B,) positions in the batch, longest sequence first
    width: int  # T

    @property
    def total_tokens(self) -> int:
        return len(self.sequences) * self.width


def plan_chunks(lengths: np.ndarray, token_budget: int, chunk_cost: int, max_rows: int | None = None) -> list[Chunk]:
    """Divide sequences into chunks of at most ``token_budget`` tokens, including padding, and at most ``max_rows``
    sequences.

    A sequence that is longer than the budget gets a separate chunk, because it cannot be divided.
    """
    order = np.argsort(-lengths, kind="stable")
    chunks, start, waste = [], 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        width = int(lengths[order[start]])
        waste += width - length
        is_full = (place - start + 1) * width > token_budget or place - start == max_rows
        if place > start and (is_full or waste > chunk_cost):
            chunks.append(Chunk(order[start:place], width))
            start, waste = place, 0
    if len(order):
        chunks.append(Chunk(order[start:], int(lengths[order[start]])))
    return chunks


def chunk_cost(device: torch.device) -> int:
    """Return the number of padding tokens whose computation takes as long as one more chunk on this device."""
    return CHUNK_COST_TOKENS.get(device.type, CHUNK_COST_ELSEWHERE)


def recomputes(how: str, tokens: int, token_budget: int) -> bool:
    """Return whether the activations of chunks are recomputed in the backward pass.

    If ``how`` is "on", they always are. If it is "auto" or "layers", they are recomputed if the number of their tokens
    exceeds the budget.
    """
    return how == "on" or (how in ("auto", LAYERS) and tokens > token_budget)


def plan_step(
    lengths: np.ndarray, token_budget: int, recomputed_budget: int, how: str, device: torch.device
) -> tuple[list[Chunk], bool]:
    """Divide the padded sequences of a training step into chunks, and return also whether they are recomputed.

    Chunks have at most ``token_budget`` tokens, or at most ``recomputed_budget`` tokens if they are recomputed. ``how``
    is the value of ``activation_checkpointing``.
    """
    chunks = plan_chunks(lengths, token_budget, chunk_cost(device))
    again = recomputes(how, total_tokens(chunks), token_budget)
    return (plan_chunks(lengths, recomputed_budget, chunk_cost(device)) if again else chunks), again


def total_tokens(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.total_tokens for chunk in chunks)


def computed(function: Callable[..., Any], *inputs: Any, again: bool) -> Any:
    """Call a function; if ``again`` is true, recompute its activations in the backward pass instead of storing them."""
    if again and torch.is_grad_enabled():
        return checkpoint(_with_limited_heap, function, *inputs, use_reentrant=False)
    return function(*inputs)


def _with_limited_heap(function: Callable[..., Any], *inputs: Any) -> Any:
    if any(isinstance(one, Tensor) and one.is_cpu for one in inputs):
        heap.limit()
    return function(*inputs)


def on_device(values: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device asynchronously."""
    sent = torch.from_numpy(values)
    if device.type == "cuda":
        sent = sent.pin_memory()  # torch caches pinned memory; a copy from unpinned memory may block
    return sent.to(device, non_blocking=device.type != "mps")


def places_in(chunks: list[Chunk], device: torch.device) -> Tensor:
    """Return the index, in the concatenated chunks, of each of the N sequences of a batch, (N,) int64."""
    return on_device(np.argsort(np.concatenate([chunk.sequences for chunk in chunks])), device)


def padded(flat: Tensor, lengths: np.ndarray, chunks: list[Chunk], fill: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, for each chunk of B sequences with at most T tokens, the padded values, (B, T), and the mask of real
    tokens, (B, T).

    ``flat`` (tokens,) contains the concatenated sequences of the batch.
    """
    starts = np.cumsum(lengths) - lengths
    for chunk in chunks:
        start_B, length_B = on_device(np.stack([starts[chunk.sequences], lengths[chunk.sequences]]), flat.device)
        place_T = torch.arange(chunk.width, device=flat.device)
        mask_BT = place_T < length_B[:, None]
        index_BT = (start_B[:, None] + place_T).clamp(max=len(flat) - 1)
        yield flat[index_BT].masked_fill(~mask_BT, fill), mask_BT


def concatenate(parts: Sequence[Ragged]) -> Ragged:
    return Ragged(torch.cat([part.ids for part in parts]), np.concatenate([part.lengths for part in parts]))


def distinct(sequences: Ragged) -> tuple[Ragged, np.ndarray]:
    """Return the distinct sequences, and for each given sequence its index among the distinct sequences,
    (sequences,).
    """
    flat = sequences.ids.numpy()
    ends = np.cumsum(sequences.lengths)
    place_of: dict[bytes, int] = {}
    kept, places = list[int](), list[int]()
    for row, (start, end) in enumerate(zip((ends - sequences.lengths).tolist(), ends.tolist(), strict=True)):
        place = place_of.setdefault(flat[start:end].tobytes(), len(place_of))
        places.append(place)
        if place == len(kept):
            kept.append(row)
    parts = [flat[ends[row] - sequences.lengths[row] : ends[row]] for row in kept]
    return Ragged(torch.from_numpy(np.concatenate(parts)), sequences.lengths[kept]), np.array(places)
