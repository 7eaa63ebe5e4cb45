"""Training without padding: all sequences of a chunk in one row, separated by attention alone.

transformers reads such a row where positions begin anew with each sequence; what a token may look at is for the
attention to say. On a CPU, and wherever else it is asked for, that is SDPA for each run of similar lengths: registered
with transformers' table of attentions, it serves every family that asks this table. On a GPU it is FlexAttention with
a block mask. A family is taken at its word by its states alone: those of a row must be those of its sequences.

Shape letters: N tokens of a row, B sequences of a run, T tokens of its longest, H heads, D width.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from contracts import InputError
from encoders.attention import OF_ATTENTION, has_dropout, reads_ahead
from encoders.kernels.chunks import Chunk, on_device, plan_chunks
from encoders.kernels.compiler import settle, why_not
from encoders.kernels.faster_cpu_layers import attention_for
from encoders.kernels.host_layout import Places

OURS = ("auto", "unpadded")
BY_RUNS, BY_BLOCKS = "sdpa_by_runs", "flex_attention"  # as transformers calls them
RUN_COST_TOKENS = 128  # padding within attention that costs as much as one more run
BLOCK = 128  # tokens: FlexAttention leaves out or takes as many queries and keys at once
SAME = 1e-4  # of a state, beside the largest


class Run(NamedTuple):
    """Sequences of a row that attention and pooling take together."""

    tokens: int  # of the row
    size: int  # B
    width: int  # T
    place: Tensor | None  # (tokens,) of each among B x T; None: they fill it
    mask_BT: Tensor

    def laid_out(self, tokens: Tensor) -> Tensor:
        """(tokens, ...) -> (B, T, ...), zeros behind each sequence."""
        if self.place is not None:
            empty = tokens.new_zeros(self.size * self.width, *tokens.shape[1:])
            tokens = empty.index_copy(0, self.place, tokens)
        return tokens.unflatten(0, (self.size, self.width))

    def in_a_row(self, states: Tensor) -> Tensor:
        """The way back."""
        tokens = states.flatten(0, 1)
        return tokens if self.place is None else tokens.index_select(0, self.place)


class Row(NamedTuple):
    """Sequences one behind the other, the longest first; behind them may be a filling, which no run has."""

    origin: Tensor  # (N,) where each token stands in the batch
    position: Tensor  # (N,) within its sequence
    sequence: Tensor  # (N,) which one it belongs to
    first: Tensor  # (B,) where each sequence begins
    runs: list[Run]

    def places(self, chosen: Places) -> Places:
        """Where tokens lie that have a row and a column each where they are padded."""
        return chosen._replace(
            rows_M=torch.zeros_like(chosen.rows_M), columns_M=self.first[chosen.rows_M] + chosen.columns_M
        )

    def split(self, tokens: Tensor) -> list[Tensor]:
        """(N, ...) -> (tokens, ...) of each run."""
        sizes = [run.tokens for run in self.runs]
        return list(tokens[: sum(sizes)].split(sizes))

    def pooled(self, over_tokens: Callable[[Tensor, Tensor], Tensor], states_ND: Tensor) -> Tensor:
        """One vector for each sequence."""
        parts = zip(self.runs, self.split(states_ND), strict=True)
        return torch.cat([over_tokens(run.laid_out(part), run.mask_BT) for run, part in parts])


def plan_rows(lengths: np.ndarray, token_budget: int) -> list[Chunk]:
    """The sequences of each row, the longest first: at most ``token_budget`` tokens, or a single sequence."""
    order = np.argsort(-lengths, kind="stable")
    cuts, tokens = list[int](), 0
    for place, length in enumerate(lengths[order].tolist()):
        if tokens and tokens + length > token_budget:
            cuts.append(place)
            tokens = 0
        tokens += length
    return [Chunk(rows, int(lengths[rows[0]])) for rows in np.split(order, cuts)]


def lay_out(lengths: np.ndarray, chunk: Chunk, device: torch.device, multiple: int = 1) -> Row:
    """Those of the batch that the chunk names, the longest first, filled up with one more sequence of the batch's
    first token to a ``multiple`` of tokens.
    """
    starts, own = (np.cumsum(lengths) - lengths)[chunk.rows], lengths[chunk.rows]
    first, sequence = np.cumsum(own) - own, np.repeat(np.arange(len(own)), own)
    position = np.arange(own.sum()) - first[sequence]
    parts = plan_chunks(own, sys.maxsize, RUN_COST_TOKENS)
    tokens = np.stack([starts[sequence] + position, position, sequence])
    filling = np.array([[0], [0], [len(own)]]).repeat(-len(position) % multiple, axis=1)
    origin, places, of = on_device(np.concatenate([tokens, filling], axis=1), device)
    runs = [_run(own[part.rows], part.width, device) for part in parts]
    return Row(origin, places, of, on_device(first, device), runs)


def _run(lengths: np.ndarray, width: int, device: torch.device) -> Run:
    mask = np.arange(width) < lengths[:, None]
    place = None if mask.all() else on_device(np.flatnonzero(mask), device)
    return Run(int(lengths.sum()), len(lengths), width, place, on_device(mask, device))


def attention_by_runs(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    row: Row,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """(1, heads, N, D) each -> (1, N, heads, D), as transformers' table wants it: SDPA of each run. What is behind a
    sequence is seen by no token of a causal one, and masked in the others.
    """
    if options.get("softcap") is not None or options.get("position_bias") is not None:
        raise NotImplementedError("scores that are changed before the softmax")
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    parts = [row.split(states[0].transpose(0, 1)) for states in (query, key, value)]
    found = []
    for run, *states in zip(row.runs, *parts, strict=True):
        mask = _seen(run, causal, sliding_window)
        q, k, v = (run.laid_out(one).transpose(1, 2) for one in states)
        with attention_for(run.mask_BT):
            out, _ = sdpa_attention_forward(module, q, k, v, mask, is_causal=causal and mask is None, **options)
        found.append(run.in_a_row(out))
    return torch.cat(found)[None], None


def _seen(run: Run, causal: bool, window: int | None) -> Tensor | None:
    """(B or 1, 1, T or 1, T) bool: who looks at whom; None: all, or all before."""
    mask = None if causal or run.place is None else run.mask_BT[:, None, None]
    if window is None or run.width <= window:
        return mask
    place_T = torch.arange(run.width, device=run.mask_BT.device)
    apart_TT = place_T[:, None] - place_T
    near_TT = (apart_TT < window) & ((apart_TT >= 0) if causal else (apart_TT > -window))
    return near_TT[None, None] if mask is None else mask & near_TT


AttentionInterface.register(BY_RUNS, attention_by_runs)


class Way(NamedTuple):
    """How the sequences of a training step meet attention."""

    attention: str | None  # of the table that serves rows; None: sequences are padded
    first: int  # position of a sequence's first token
    why: str  # for the log
    causal: bool = False  # for FlexAttention, whose mask says it; others know it

    @property
    def multiple(self) -> int:
        """Of tokens that a row has, so that what is compiled for one serves the others."""
        return BLOCK if self.attention == BY_BLOCKS else 1

    def inputs(self, ids: Tensor, row: Row) -> dict[str, Any]:
        """What a trunk is called with, ``ids`` being those of the batch."""
        mask = _block_mask(row.sequence, self.causal) if self.attention == BY_BLOCKS else None
        inputs = {"input_ids": ids[row.origin][None], "position_ids": row.position[None] + self.first}
        return inputs | {"attention_mask": mask} | ({"row": row} if self.attention == BY_RUNS else {})


def set_attn_implementation(transformer: PreTrainedModel, asked: str, backbone: str) -> None:
    """Give it an attention of transformers' own, where one is named.

    Raises:
        InputError: there is none of this name, or not for this family or on this machine.
    """
    if asked in OURS:
        return
    take = "Take auto, unpadded, sdpa or eager."
    if not isinstance(asked, str) or asked == BY_RUNS or "|" in asked:
        raise InputError(f"model.attn_implementation={asked}: no attention that texts are trained with. {take}")
    if "/" in asked:
        raise InputError(
            f"model.attn_implementation={asked}: wanted the name of an attention that transformers has, got code of a "
            f"hub, and such is never loaded. {take}"
        )
    try:
        transformer.get_correct_attn_implementation(asked)  # else code of a hub stands in for a package that is missing
        transformer.set_attn_implementation(asked)
        if transformer.config._attn_implementation != asked:
            raise ValueError("the attention of this family cannot be chosen")
    except (ValueError, ImportError, KeyError) as error:
        raise InputError(
            f"model.attn_implementation={asked}: transformers refuses it for backbone={backbone} ({error}). {take}"
        ) from error


def way_of(trunk: PreTrainedModel, asked: str, device: torch.device) -> Way:
    """``asked`` is auto, unpadded, or an attention of transformers' own, under which sequences are padded.

    Dropout draws a number for every place, so that without padding other ones are drawn: on a CPU auto then
    pads.

    Raises:
        InputError: unpadded was asked for, and this family cannot be; or what has no backward pass on this device.
    """
    if asked == BY_BLOCKS and device.type == "cpu":
        raise InputError(f"model.attn_implementation={asked}: on a CPU it has no backward pass. Take auto or sdpa.")
    if asked not in OURS:
        return Way(None, 0, f"padded, {asked} of transformers")
    kind, first = trunk.config.model_type, first_position(trunk)
    if first is None and asked == "unpadded":
        raise InputError(
            f"model.attn_implementation=unpadded: a {kind} cannot read texts one behind the other. Take auto, which "
            "pads them, or another family (BERT, RoBERTa, ModernBERT, Llama, Mistral, Qwen ...)."
        )
    if first is None:
        return Way(None, 0, f"padded, as a {kind} cannot read texts one behind the other")
    if device.type != "cpu" and (why := refused_blocks(trunk, device)) is None:
        return by_blocks(trunk, first)
    if asked == "auto" and device.type != "cpu":
        return Way(None, 0, f"padded, as {why}")
    if asked == "auto" and has_dropout(trunk):
        return Way(None, 0, "padded, as dropout is on; model.attn_implementation=unpadded draws it for fewer places")
    return Way(BY_RUNS, first, "unpadded, SDPA for texts of similar length")


def by_blocks(trunk: PreTrainedModel, first: int) -> Way:
    """FlexAttention; whether a token sees those behind it is asked of the model, as its config need not say it."""
    settle()
    with torch.autocast(trunk.device.type, enabled=False):
        return Way(BY_BLOCKS, first, "unpadded, FlexAttention", causal=not reads_ahead(trunk))


def refused_blocks(trunk: PreTrainedModel, device: torch.device) -> str | None:
    """Why FlexAttention cannot be taken; None where it can."""
    if not takes_blocks(trunk):
        return f"FlexAttention does not serve this {trunk.config.model_type}"
    why = why_not(device)
    return why and f"FlexAttention wants torch's compiler, which does not work here ({why})"


def takes_blocks(trunk: PreTrainedModel) -> bool:
    """Whether FlexAttention computes what this model does: neither a window nor dropout within attention, and nothing
    else reads the mask.
    """
    config = trunk.config
    drops = any(getattr(config, name, None) for name in OF_ATTENTION)
    can = trunk._supports_flex_attn and getattr(config, "sliding_window", None) is None and not drops
    return can and first_position(trunk, blocks=True) is not None


@torch.no_grad()
def first_position(trunk: PreTrainedModel, *, blocks: bool = False) -> int | None:
    """What a sequence's positions begin with, so that its states in a row are its states; None where nothing helps.
    With ``blocks`` the model is given a block mask to hand on.
    """
    if not trunk._supports_flash_attn or "position_ids" not in inspect.signature(trunk.forward).parameters:
        return None
    device, training, lengths = trunk.device, trunk.training, np.array([6, 4, 3, 3])
    ids_BT = torch.arange(5, 29, device=device).view(4, 6)
    if (mask := getattr(trunk.config, "mask_token_id", None)) is not None:
        ids_BT[0, 1] = mask  # ESM scales each text by the share of these
    row = lay_out(lengths, Chunk(np.arange(4), 6), device)
    mask_BT = torch.arange(6, device=device) < torch.from_numpy(lengths).to(device)[:, None]
    keeps = {"use_cache": False} if "use_cache" in inspect.signature(trunk.forward).parameters else {}
    trunk.eval()
    try:
        with torch.autocast(device.type, enabled=False):
            states = trunk(input_ids=ids_BT, attention_mask=mask_BT.long(), **keeps).last_hidden_state[mask_BT]
            for first in dict.fromkeys((0, (trunk.config.pad_token_id or 0) + 1)):
                inputs = Way(BY_RUNS, first, "").inputs(ids_BT[mask_BT], row)
                inputs["attention_mask"] = _block_mask(row.sequence, causal=False) if blocks else None
                with attending(trunk, BY_RUNS):
                    found = trunk(**inputs, **keeps).last_hidden_state[0]
                if (found - states).abs().max() <= SAME * states.abs().max():
                    return first
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):  # each family has its own way
        return None
    finally:
        trunk.train(training)
    return None


@contextlib.contextmanager
def attending(trunk: PreTrainedModel, attention: str) -> Iterator[None]:
    """Inside, the trunk's attention is that of transformers' table."""
    before = trunk.config._attn_implementation
    trunk.config._attn_implementation = attention
    try:
        yield
    finally:
        trunk.config._attn_implementation = before


def _block_mask(sequence: Tensor, causal: bool) -> Any:
    """(N,) which sequence each token belongs to, in ascending order -> what FlexAttention skips, takes whole, or asks
    token by token. Nothing is made of the size N x N: two blocks share a sequence where what one begins with is no
    later than what the other ends with.
    """
    from torch.nn.attention.flex_attention import BlockMask

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = sequence[query] == sequence[key]
        return same & (key <= query) if causal else same

    tokens = len(sequence)
    blocks = F.pad(sequence, (0, -tokens % BLOCK), value=tokens).view(-1, BLOCK)
    first, last = blocks[:, 0], blocks[:, -1]
    shared = (first[:, None] <= last) & (first <= last[:, None])
    whole = (last[:, None] == first) & (last == first[:, None])
    if causal:
        shared, whole = shared.tril(), whole.tril(-1)
    return BlockMask.from_kv_blocks(
        *_listed(shared & ~whole), *_listed(whole), BLOCK_SIZE=BLOCK, mask_mod=seen, seq_lengths=(tokens, tokens)
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(queries, keys) bool -> how many blocks of keys each has, and which, those first."""
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], order.int()[None, None]
