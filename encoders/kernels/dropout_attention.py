"""Scaled dot-product attention with dropout of the attention weights, on a CPU.

torch has no fused kernel for it on CPUs: its math kernel writes the weights, the random numbers, and their products to
memory several times, for all sequences and heads. Here, attention is computed in blocks of sequences and heads that fit
into the cache, and the backward pass computes the weights and the random numbers of each block again (as in Dao et al.,
FlashAttention, 2022, section 3.1 and appendix B.4), so neither is kept in memory.

Shape letters: B sequences, H heads, T tokens, D width of a head; b sequences and h heads of a block.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrastive_encoders.encoders.kernels.cpu_dropout import LEVELS, dropout_factors

# Attention weights of a block: with one thread, 1 MiB in float32; several threads wait for each other in small blocks
ONE_THREAD_BLOCK, THREADS_BLOCK = 1 << 18, 1 << 21


def supports_dropout_attention(query: Tensor, key: Tensor, dropout: float) -> bool:
    """Return whether `dropout_attention` supports these states: on a CPU, with dropout, and with as many heads for keys
    as for queries.
    """
    return query.is_cpu and query.shape[1] == key.shape[1] and 0 < round(dropout * LEVELS) < LEVELS


def dropout_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, scale: float | None = None
) -> Tensor:
    """Compute scaled dot-product attention with dropout of the attention weights, which are at least float32. Under
    autocast, queries, keys, and values are converted to the autocast type.

    One number is drawn from torch's global generator: the seed of all other random numbers. If all tokens are masked
    for a query, its output is the mean of the values.

    Args:
        query: Shape (B, H, T, D).
        key: Shape (B, H, T, D).
        value: Shape (B, H, T, D).
        mask: Shape (B or 1, 1, T or 1, T), bool, true for tokens that are attended to; None: all tokens.
        dropout: Probability that an attention weight is replaced by 0, rounded to a multiple of 1/65,536.
        scale: Factor of the scores; None: 1 / sqrt(D).

    Returns:
        Attention output, shape (B, H, T, D).
    """
    seed = int(torch.empty((), dtype=torch.int64).random_())
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    q, k, v = (states.to(dtype) for states in (query, key, value))
    return _DropoutAttention.apply(q, k, v, mask, seed, round(dropout * LEVELS), scale)


class _DropoutAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, seed: int, dropped: int, scale: float
    ) -> Tensor:
        out = q.new_empty(q.shape)
        for block, weights, factors in _blocks(q, k, mask, seed, dropped, scale):
            out[block] = weights.mul_(factors).to(v.dtype) @ v[block]
        ctx.save_for_backward(q, k, v, mask, out)
        ctx.options = seed, dropped, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out = ctx.saved_tensors
        d_q, d_k, d_v = (states.new_empty(states.shape) for states in (q, k, v))
        dtype = _dtype_of_weights(q)
        # Mean of each query's gradient of the weights, weighted by the weights
        means = (d_out.to(dtype) * out).sum(-1, keepdim=True)
        for block, weights, factors in _blocks(q, k, mask, *ctx.options):
            d_weights = (d_out[block] @ v[block].mT).to(dtype).mul_(factors)
            d_scores = d_weights.sub_(means[block]).mul_(weights).mul_(ctx.options[-1]).to(q.dtype)
            d_v[block] = weights.mul_(factors).to(v.dtype).mT @ d_out[block]
            d_q[block] = d_scores @ k[block]
            d_k[block] = d_scores.mT @ q[block]
        return d_q, d_k, d_v, None, None, None, None


def _blocks(
    q: Tensor, k: Tensor, mask: Tensor | None, seed: int, dropped: int, scale: float
) -> Iterator[tuple[tuple[slice, slice], Tensor, Tensor]]:
    """Yield the slices of sequences and heads of each block, its attention weights before dropout, and the factors of
    dropout, both (b, h, T, T).
    """
    generator = torch.Generator().manual_seed(seed)
    sequences, heads, tokens, _ = q.shape
    elements = ONE_THREAD_BLOCK if torch.get_num_threads() == 1 else THREADS_BLOCK
    b = max(1, elements // (heads * tokens * tokens))
    h = min(heads, max(1, elements // (tokens * tokens)))
    dtype = _dtype_of_weights(q)
    bias = None if mask is None else torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    for first in range(0, sequences, b):
        for head in range(0, heads, h):
            block = slice(first, first + b), slice(head, head + h)
            scores = (q[block] @ k[block].mT).to(dtype).mul_(scale)
            if bias is not None:
                scores += bias if len(bias) == 1 else bias[block[0]]
            weights = torch.softmax(scores, -1)
            yield block, weights, dropout_factors(weights, dropped, generator)


def _dtype_of_weights(states: Tensor) -> torch.dtype:
    return torch.promote_types(states.dtype, torch.float32)
