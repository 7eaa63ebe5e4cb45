"""Run prompts and their counter prompts through the model once, for all samples that will continue them.

Each text is run once even if several prompts share it, and texts of similar length share a pass.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from synthesis.caches import KeysValues
from synthesis.generator import Generator

# Axes: R texts, T tokens, V vocabulary
TOKENS = 2048  # in one pass, padding included


class Pass(NamedTuple):
    """Texts of one forward pass, left-padded to the same last column."""

    layers: list[KeysValues]
    lengths_R: np.ndarray  # int64
    logits_RV: Tensor  # of the token behind each text


class Place(NamedTuple):
    """Where a text's keys, values and logits are."""

    shared: Pass
    row: int


def prefill(generator: Generator, ids_of: dict[str, list[int]]) -> tuple[dict[str, Place], int, int]:
    """The place of every text, and how many real and padded tokens that took."""
    by_length = sorted(ids_of, key=lambda text: len(ids_of[text]))
    places: dict[str, Place] = {}
    real = padded = 0
    while by_length:
        longest = len(ids_of[by_length[-1]])
        texts = by_length[-max(1, TOKENS // longest) :]
        del by_length[-len(texts) :]
        shared = _run(generator, [ids_of[text] for text in texts])
        places.update({text: Place(shared, row) for row, text in enumerate(texts)})
        real += int(shared.lengths_R.sum())
        padded += longest * len(texts) - int(shared.lengths_R.sum())
    return places, real, padded


def _run(generator: Generator, ids: Sequence[list[int]]) -> Pass:
    lengths_R = np.array([len(one) for one in ids], dtype=np.int64)
    columns = int(lengths_R.max())
    ids_RT = np.zeros((len(ids), columns), dtype=np.int64)  # what stands in the padding is masked: no pad token needed
    for row, one in enumerate(ids):
        ids_RT[row, columns - len(one) :] = one
    real_RT = torch.from_numpy(np.arange(columns) >= (columns - lengths_R)[:, None]).to(generator.device)
    cache = DynamicCache()
    logits = forward(
        generator,
        torch.from_numpy(ids_RT).to(generator.device),
        real_RT,
        (real_RT.cumsum(1) - 1).clamp_(min=0),
        cache,
    )
    # A masked key counts for nothing, but nothing times NaN is NaN: no state of a padding token may stay
    padding = ~real_RT[:, None, :, None]
    states: list[Any] = cache.layers
    layers = [KeysValues(one.keys.masked_fill(padding, 0), one.values.masked_fill(padding, 0)) for one in states]
    return Pass(layers, lengths_R, logits)


def forward(generator: Generator, ids_RT: Tensor, real_RT: Tensor, positions_RT: Tensor, cache: object) -> Tensor:
    """(R, V) logits behind the last column. ``real_RT`` is the mask over the cache's columns and these."""
    options = {"position_ids": positions_RT, "logits_to_keep": 1}
    options = {name: value for name, value in options.items() if name in generator.accepts}  # BLOOM has no positions
    outcome = generator.model(
        input_ids=ids_RT, attention_mask=real_RT.long(), past_key_values=cache, use_cache=True, **options
    )
    logits: Tensor = outcome.logits[:, -1]
    return logits
