"""Scaled dot-product attention with dropout of the attention weights, on a CPU.

torch has no fused kernel for it on CPUs: its math kernel writes the weights, the random numbers, and their products to
memory several times, for all sequences and heads. Here, attention is computed in blocks of sequences and heads, and the
backward pass computes the weights and the random numbers of each block again (as in Dao et al., FlashAttention, 2022,
section 3.1 and appendix B.4), so neither is kept in memory. A block has at least one head; its size grows with the
square of the number of tokens.

Shape letters: B sequences, H heads, T tokens, D width of keys, E width of values; b sequences and h heads of a block.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrastive_encoders.encoders.kernels.cpu_dropout import LEVELS, dropout_factors, dropped_levels

# Attention weights of a block. With one thread, they take 1 MiB and stay in the cache. With several threads, each
# operation ends with a barrier, so blocks are larger.
ONE_THREAD_BLOCK, THREADS_BLOCK = 1 << 18, 1 << 21


def supports_dropout_attention(query: Tensor, key: Tensor, dropout: float) -> bool:
    """Return whether `dropout_attention` can be used: the tensors are on a CPU, attention dropout is enabled, and
    queries and keys have the same number of heads.
    """
    return query.is_cpu and query.shape[1] == key.shape[1] and 0 < dropped_levels(dropout) < LEVELS


def dropout_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, scale: float | None = None
) -> Tensor:
    """Compute scaled dot-product attention with dropout of the attention weights.

    Scores, weights, and their gradients are at least float32; weights are converted to the type of the values before
    they are multiplied by them. Under autocast, states that are not float64 are converted to the autocast type first.
    One number is drawn from torch's global generator: the seed of all other random numbers.

    Args:
        query: Shape (B, H, T, D).
        key: Shape (B, H, T, D).
        value: Shape (B, H, T, E).
        mask: Shape (B or 1, 1, T or 1, T), bool, true for tokens that are attended to; None: all tokens. If all tokens
            are masked for a query, all of them have the same weight.
        dropout: Probability that an attention weight is replaced by 0, rounded to a multiple of 1/65,536.
        scale: Factor of the scores; None: 1 / sqrt(D).

    Returns:
        Attention output, shape (B, H, T, E).
    """
    seed = int(torch.empty((), dtype=torch.int64).random_())
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    q, k, v = query, key, value
    if torch.is_autocast_enabled("cpu") and query.dtype != torch.float64:
        q, k, v = (states.to(torch.get_autocast_dtype("cpu")) for states in (q, k, v))
    return _DropoutAttention.apply(q, k, v, mask, seed, dropped_levels(dropout), scale)


class _DropoutAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, seed: int, dropped: int, scale: float
    ) -> Tensor:
        out = v.new_empty((*q.shape[:-1], v.shape[-1]))
        for block, weights, factors in _blocks(q, k, mask, seed, dropped, scale):
            out[block] = weights.mul_(factors).to(v.dtype) @ v[block]
        ctx.save_for_backward(q, k, v, mask)
        ctx.options = seed, dropped, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        d_q, d_k, d_v = (states.new_empty(states.shape) for states in (q, k, v))
        for block, weights, factors in _blocks(q, k, mask, *ctx.options):
            d_weights = _product(d_out[block], v[block].mT).mul_(factors)
            means = (d_weights * weights).sum(-1, keepdim=True)  # of the gradients of a query's weights
            d_scores = d_weights.sub_(means).mul_(weights).mul_(ctx.options[-1]).to(q.dtype)
            d_v[block] = weights.mul_(factors).to(v.dtype).mT @ d_out[block]
            d_q[block] = d_scores @ k[block]
            d_k[block] = d_scores.mT @ q[block]
        return d_q, d_k, d_v, None, None, None, None


def _blocks(
    q: Tensor, k: Tensor, mask: Tensor | None, seed: int, dropped: int, scale: float
) -> Iterator[tuple[tuple[slice, slice], Tensor, Tensor]]:
    """Yield the slices of sequences and heads of each block, its attention weights before dropout, and its dropout
    factors, both (b, h, T, T). The factors of a head do not depend on the size of the blocks.
    """
    generator = torch.Generator().manual_seed(seed)
    sequences, heads, tokens, _ = q.shape
    elements = ONE_THREAD_BLOCK if torch.get_num_threads() == 1 else THREADS_BLOCK
    per_head = max(1, tokens * k.shape[2])
    b, h = max(1, elements // (heads * per_head)), min(heads, max(1, elements // per_head))
    dtype = _dtype_of_weights(q)
    bias = None if mask is None else torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    for first in range(0, sequences, b):
        for head in range(0, heads, h):
            block = slice(first, first + b), slice(head, head + h)
            scores = _product(q[block], k[block].mT).mul_(scale)
            if bias is not None:
                scores += bias if len(bias) == 1 else bias[block[0]]
            weights = torch.softmax(scores, -1)
            parts = weights.shape[0] * weights.shape[1]
            yield block, weights, dropout_factors(weights, dropped, generator, parts=parts)


def _product(x: Tensor, y: Tensor) -> Tensor:
    """Return the matrix product of two tensors without rounding it to less than float32."""
    dtype = _dtype_of_weights(x)
    with torch.autocast("cpu", enabled=False):
        return x.to(dtype) @ y.to(dtype)


def _dtype_of_weights(states: Tensor) -> torch.dtype:
    return torch.promote_types(states.dtype, torch.float32)
