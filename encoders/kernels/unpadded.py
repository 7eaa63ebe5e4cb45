"""Training without padding: all sequences of a chunk are packed into one row, and only the attention separates them.

Position ids restart at each sequence, and the attention function restricts each token to its own sequence. On a GPU,
variable-length attention kernels are used; on other devices, SDPA runs once per group of sequences with similar
lengths. The attention function is registered with transformers' `AttentionInterface`, so that it works for every model
family that uses this interface. A family is accepted only if a test shows that the hidden states of packed sequences
equal those of the padded sequences.

Shape letters: N tokens of a row, B sequences of a length bucket, T tokens of its longest sequence, H heads, D width.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from contrastive_encoders.compat import attention_implementation, attention_replaced, takes_any_attention
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.attention import evaluation_mode
from contrastive_encoders.encoders.kernels.chunks import Chunk, chunk_cost, on_device, plan_chunks
from contrastive_encoders.encoders.kernels.dropout_attention import dropout_attention, supports_dropout_attention
from contrastive_encoders.encoders.kernels.gpu_kernels import varlen_attention
from contrastive_encoders.encoders.kernels.host_layout import TokenIndices
from contrastive_encoders.encoders.kernels.onednn_layers import attention_for

PACKED_MODES = ("auto", "unpadded")
CHOICES = "Use auto, unpadded, sdpa, or eager."
PACKED_ATTENTION = "sdpa_by_runs"  # name in transformers' attention interface
FLEX = "flex_attention"  # implemented in transformers, for padded sequences
RUN_COST_TOKENS_CPU = 128  # padding tokens that cost as much as one more bucket; on other devices, see `chunk_cost`
SAME_CPU, SAME_ELSEWHERE = 1e-4, 2e-3  # tolerance relative to the largest state; a GPU may compute matmuls in TF32
SAME_HALF = 0.2  # tolerance relative to the norm of all states: 30 layers in bfloat16 change 0.05 of it


class LengthBucket(NamedTuple):
    """Sequences with similar lengths in a packed row, which attention and pooling process as one padded batch."""

    tokens: int  # number of tokens in the bucket
    size: int  # B
    width: int  # T
    place: Tensor | None  # (tokens,) index of each token in the flat B x T batch; None: there is no padding
    mask_BT: Tensor

    def pad(self, tokens: Tensor) -> Tensor:
        """Pad the B sequences of the bucket with zeros to T tokens: (tokens, ...) -> (B, T, ...)."""
        if self.place is not None:
            empty = tokens.new_zeros(self.size * self.width, *tokens.shape[1:])
            tokens = empty.index_copy(0, self.place, tokens)
        return tokens.unflatten(0, (self.size, self.width))

    def unpad(self, states: Tensor) -> Tensor:
        """Remove the padding of the B sequences: (B, T, ...) -> (tokens, ...)."""
        tokens = states.flatten(0, 1)
        return tokens if self.place is None else tokens.index_select(0, self.place)


class PackedRow(NamedTuple):
    """Packed sequences in descending order of length, possibly followed by filler tokens."""

    origin: Tensor  # (N,) index of each token in the token ids of the batch
    position: Tensor  # (N,) position of each token within its sequence
    bounds: Tensor  # (B + 1,) int32, the start of each sequence, and the end of the last one
    runs: list[LengthBucket]

    @property
    def longest(self) -> int:
        return self.runs[0].width

    def places(self, chosen: TokenIndices) -> TokenIndices:
        """Convert the indices of tokens in the padded batch to the indices of the same tokens in this packed row."""
        return chosen._replace(
            rows_M=torch.zeros_like(chosen.rows_M), columns_M=self.bounds[chosen.rows_M] + chosen.columns_M
        )

    def split(self, tokens: Tensor) -> list[Tensor]:
        """Split the N tokens of the row, (N, ...), into one tensor (tokens, ...) per bucket, without the filler
        tokens.
        """
        sizes = [run.tokens for run in self.runs]
        return list(tokens[: sum(sizes)].split(sizes))

    def pooled(self, over_tokens: Callable[[Tensor, Tensor], Tensor], states_ND: Tensor) -> Tensor:
        """Pool the hidden states of the row's N tokens, (N, D), into one embedding for each of the B sequences, (B, D),
        with ``over_tokens``. Return the embeddings (B, D).
        """
        parts = zip(self.runs, self.split(states_ND), strict=True)
        return torch.cat([over_tokens(run.pad(part), run.mask_BT) for run, part in parts])


def plan_rows(lengths: np.ndarray, token_budget: int) -> list[Chunk]:
    """Divide sequences, in descending order of length, into rows of at most ``token_budget`` tokens.

    A longer sequence gets a row of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    cuts, tokens = list[int](), 0
    for place, length in enumerate(lengths[order].tolist()):
        if tokens and tokens + length > token_budget:
            cuts.append(place)
            tokens = 0
        tokens += length
    return [Chunk(rows, int(lengths[rows[0]])) for rows in np.split(order, cuts)]


def pack_sequences(lengths: np.ndarray, chunk: Chunk, device: torch.device) -> PackedRow:
    """Pack the sequences of a chunk into one row, in descending order of length."""
    starts, own = (np.cumsum(lengths) - lengths)[chunk.sequences], lengths[chunk.sequences]
    bounds = np.concatenate([[0], np.cumsum(own)])
    position = np.arange(own.sum()) - np.repeat(bounds[:-1], own)
    cost = RUN_COST_TOKENS_CPU if device.type == "cpu" else chunk_cost(device)
    parts = plan_chunks(own, sys.maxsize, cost)
    places = np.stack([np.repeat(starts, own) + position, position])
    origin, positions = on_device(np.pad(places, ((0, 0), (0, num_filler_tokens(len(position), device)))), device)
    runs = [_run(own[part.sequences], part.width, device) for part in parts]
    return PackedRow(origin, positions, on_device(bounds.astype(np.int32), device), runs)


def num_filler_tokens(tokens: int, device: torch.device) -> int:
    """Return the number of filler tokens to append to a row.

    On a CPU in half precision, rows should have few distinct lengths: oneDNN prepares and caches its matmuls for each
    length, which takes 8 % of a step.
    """
    if device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return 0
    return -tokens % max(32, (1 << tokens.bit_length()) // 64)


def _run(lengths: np.ndarray, width: int, device: torch.device) -> LengthBucket:
    mask = np.arange(width) < lengths[:, None]
    place = None if mask.all() else on_device(np.flatnonzero(mask), device)
    return LengthBucket(int(lengths.sum()), len(lengths), width, place, on_device(mask, device))


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    row: PackedRow,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention within each sequence of a packed row of N tokens; queries, keys, and values have the shape (1,
    heads, N, D), the output has the shape (1, N, heads, D).

    The signature follows transformers' `AttentionInterface`. Padding after a sequence is invisible to causal attention
    and masked in bidirectional attention.
    """
    if options.get("softcap") is not None or options.get("position_bias") is not None:
        raise NotImplementedError(
            "packed attention does not support softcap or position_bias, which change scores before the softmax"
        )
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    window = None if sliding_window is None or row.longest <= sliding_window else sliding_window
    q, k, v = (states.transpose(1, 2).squeeze(0) for states in (query, key, value))
    attended = varlen_attention(q, k, v, row.bounds, row.longest, causal=causal, window=window, **options)
    if attended is not None:
        return attended[None], None
    parts = [row.split(states) for states in (q, k, v)]
    dropout, found = options.get("dropout", 0.0), []
    for run, *states in zip(row.runs, *parts, strict=True):
        mask = _attention_mask(run, causal, window)
        q, k, v = (run.pad(one).transpose(1, 2) for one in states)
        if supports_dropout_attention(q, k, dropout):
            if causal and mask is None:
                mask = torch.ones(run.width, run.width, dtype=torch.bool).tril()[None, None]
            out = dropout_attention(q, k, v, mask, dropout, options.get("scaling")).transpose(1, 2)
        else:
            with attention_for(run.mask_BT):
                out, _ = sdpa_attention_forward(module, q, k, v, mask, is_causal=causal and mask is None, **options)
        found.append(run.unpad(out))
    filler = found[0].new_zeros(query.shape[2] - sum(map(len, found)), *found[0].shape[1:])
    return torch.cat([*found, filler])[None], None


def _attention_mask(run: LengthBucket, causal: bool, window: int | None) -> Tensor | None:
    """Return the attention mask of a bucket of B sequences with at most T tokens, (B or 1, 1, T or 1, T) bool, which is
    true for tokens that are attended to.

    None means that all tokens are visible, or all previous tokens if ``causal`` is True.
    """
    mask = None if causal or run.place is None else run.mask_BT[:, None, None]
    if window is None or run.width <= window:
        return mask
    place_T = torch.arange(run.width, device=run.mask_BT.device)
    distance_TT = place_T[:, None] - place_T
    near_TT = (distance_TT < window) & ((distance_TT >= 0) if causal else (distance_TT > -window))
    return near_TT[None, None] if mask is None else mask & near_TT


AttentionInterface.register(PACKED_ATTENTION, packed_attention)


class AttentionPlan(NamedTuple):
    """Decision whether training steps compute attention over packed rows or over padded sequences, with its reason."""

    is_packed: bool  # False: sequences are padded
    first: int  # position id of a sequence's first token
    why: str  # reason, for the log

    def inputs(self, ids: Tensor, row: PackedRow) -> dict[str, Any]:
        """Return the keyword arguments with which a transformer is called for a row. ``ids`` (tokens,) are those of the
        batch.
        """
        positions = row.position[None] + self.first
        return {"input_ids": ids[row.origin][None], "position_ids": positions, "attention_mask": None, "row": row}


def set_attn_implementation(transformer: PreTrainedModel, requested: str, backbone: str) -> None:
    """Set the attention implementation of a transformer to ``requested``, if transformers has an implementation with
    this name.

    Raises:
        InputError: If the implementation does not exist, or is not available for this family or on this machine.
    """
    if requested in PACKED_MODES:
        return
    if not isinstance(requested, str) or requested == PACKED_ATTENTION or "|" in requested or "/" in requested:
        raise InputError(
            key="model.attn_implementation",
            value=requested,
            expected="auto, unpadded, or an attention implementation of transformers that training supports; code from "
            "the hub is never loaded",
            hint=CHOICES,
        )
    try:
        transformer.get_correct_attn_implementation(requested)  # or hub code would replace a missing package
        transformer.set_attn_implementation(requested)
        if attention_implementation(transformer) != requested:
            raise ValueError("this model family has only one attention implementation")
    except (ValueError, ImportError, KeyError) as error:
        raise InputError(
            key="model.attn_implementation",
            value=requested,
            expected=f"an implementation that transformers supports for {backbone} ({error})",
            hint=CHOICES,
        ) from error


def choose_attention(trunk: PreTrainedModel, requested: str, device: torch.device) -> AttentionPlan:
    """Choose between packed and padded attention for training steps.

    Args:
        trunk: Model without heads.
        requested: "auto", "unpadded", or an implementation of transformers, which is used with padded sequences.
        device: Device of the training step.

    Raises:
        InputError: If "unpadded" is not available for this family, or if the implementation has no backward pass on
            this device.
    """
    if requested == FLEX and device.type == "cpu":
        raise InputError(
            key="model.attn_implementation",
            value=requested,
            expected="an implementation with a backward pass on a CPU",
            hint="Use auto or sdpa.",
        )
    if requested not in PACKED_MODES:
        return AttentionPlan(False, 0, f"padded, {requested} of transformers")
    kind, first = trunk.config.model_type, first_position(trunk)
    if first is None and requested == "unpadded":
        raise InputError(
            key="model.attn_implementation",
            value=requested,
            expected=f"an implementation with padding, because a {kind} model does not support packed sequences",
            hint="Use auto, or choose another model family (BERT, RoBERTa, ModernBERT, Llama, Mistral, Qwen ...).",
        )
    if first is None:
        return AttentionPlan(False, 0, f"padded, because a {kind} model does not support packed sequences")
    return AttentionPlan(True, first, "unpadded")


@torch.no_grad()
def first_position(trunk: PreTrainedModel) -> int | None:
    """Return the position id that the first token of each sequence must have in a packed row, so that packed and padded
    sequences have equal hidden states.

    The states are compared without autocast and in the precision of the training step. Return None if no position id
    passes.
    """
    if not takes_any_attention(trunk) or "position_ids" not in inspect.signature(trunk.forward).parameters:
        return None
    halves = [False, *([True] * torch.is_autocast_enabled(trunk.device.type))]
    try:
        with evaluation_mode(trunk):
            for first in dict.fromkeys((0, (trunk.config.pad_token_id or 0) + 1)):
                if all(_packing_preserves_states(trunk, first, autocast) for autocast in halves):
                    return first
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):  # families fail in different ways
        return None
    return None


def _packing_preserves_states(trunk: PreTrainedModel, first: int, autocast: bool) -> bool:
    """Return whether packing four sequences preserves their hidden states of a padded batch.

    The first sequence is longer than the sliding window, if there is one: some families pass the window only in the
    attention mask, which a packed row does not have.
    """
    device, lengths = trunk.device, np.array([9, 4, 3, 3])
    ids_BT = 5 + torch.arange(36, device=device).view(4, 9) % 24
    if (mask := getattr(trunk.config, "mask_token_id", None)) is not None:
        ids_BT[0, 1] = mask  # ESM scales each text by the fraction of mask tokens
    mask_BT = torch.arange(9, device=device) < torch.from_numpy(lengths).to(device)[:, None]
    keeps = {"use_cache": False} if "use_cache" in inspect.signature(trunk.forward).parameters else {}
    with torch.autocast(device.type, enabled=autocast), _window_of(trunk, 3):
        states = trunk(input_ids=ids_BT, attention_mask=mask_BT.long(), **keeps).last_hidden_state[mask_BT]
        row = pack_sequences(lengths, Chunk(np.arange(4), 9), device)
        with use_packed_attention(trunk):
            found = trunk(
                **AttentionPlan(True, first, "").inputs(ids_BT[mask_BT], row), **keeps
            ).last_hidden_state.squeeze(0)
    half = autocast or states.dtype in (torch.float16, torch.bfloat16)
    distance, states = (found[: len(states)] - states).float(), states.float()
    if half:
        return bool(distance.norm() <= SAME_HALF * states.norm())
    return bool(distance.abs().max() <= (SAME_CPU if device.type == "cpu" else SAME_ELSEWHERE) * states.abs().max())


@contextlib.contextmanager
def _window_of(trunk: PreTrainedModel, tokens: int) -> Iterator[None]:
    """Context manager that sets the size, in tokens, of the attention's sliding window, if the attention has one.

    A small window hides much of a short text. Masks are built from the config; modules keep their own copy of the
    window, in some families increased by one.
    """
    if not (window := getattr(trunk.config, "sliding_window", None)):
        yield
        return
    kept = {module: module.sliding_window for module in trunk.modules() if getattr(module, "sliding_window", None)}
    config = dict(vars(trunk.config))  # the config of ModernBERT has a separate window for each side
    try:
        trunk.config.sliding_window = tokens
        for module, own in kept.items():
            module.sliding_window = own - window + tokens
        yield
    finally:
        vars(trunk.config).update(config)
        for module, own in kept.items():
            module.sliding_window = own


def use_packed_attention(trunk: PreTrainedModel) -> AbstractContextManager[None]:
    """Return a context manager in which a transformer computes its attention with `packed_attention`."""
    return attention_replaced(trunk, PACKED_ATTENTION)
