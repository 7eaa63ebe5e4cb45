"""The default token budget of a chunk, from the memory of the device."""

from collections.abc import Iterable, Sequence
from itertools import chain

import torch
from torch import nn
from transformers import PreTrainedModel

from contrastive_encoders.encoders.kernels.chunks import LAYERS

ACTIVATION_BYTES = 2**33
LEAST_TOKENS = 512  # of a chunk, whatever the memory
LAYER_BYTES, INPUT_BYTES = 68, 4  # of a feature of a token: what a layer keeps in float32, and its input alone


def resolve_token_budget(
    asked: int | None,
    device: torch.device,
    *halves: PreTrainedModel,
    beside: Iterable[nn.Module] = (),
    recompute: str = "auto",
) -> int:
    """``asked``; else what the device affords each of the halves of a step: see `affordable_tokens`."""
    return asked or affordable_tokens(halves, beside, memory_of(device), by_layers=recompute == LAYERS)


def memory_of(device: torch.device) -> int | None:
    """Bytes of a GPU, whoever else uses it, so that a run that is continued cuts its batches as before."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def affordable_tokens(
    halves: Sequence[PreTrainedModel],
    beside: Iterable[nn.Module] = (),
    memory: int | None = None,
    *,
    by_layers: bool = False,
) -> int:
    """Tokens whose activations take about 8 GiB in float32: 27,000 of DistilRoBERTa, 14,000 of RoBERTa-base. Of a GPU
    with ``memory`` bytes they take half of what float32 weights, gradients and the moments of Adam leave, those of
    what stands ``beside`` counted, and shared ones once.

    Each half, such as an encoder and its decoder, keeps the activations of so many tokens at once: 34 bytes per layer
    and feature in half precision, attention left out (Korthikanti et al. 2023, eq. 1), twice that in float32.
    ``by_layers``: where each layer is computed again these of one layer, and the input of every layer.
    """
    room = ACTIVATION_BYTES
    if memory is not None:
        weights = set(chain.from_iterable(module.parameters() for module in (*halves, *beside)))
        room = (memory - sum(one.numel() * (16 if one.requires_grad else one.element_size()) for one in weights)) // 2
    kept = 0
    for half in halves:
        layers, width = int(half.config.num_hidden_layers), int(half.config.hidden_size)
        kept += width * (LAYER_BYTES + INPUT_BYTES * layers if by_layers else LAYER_BYTES * layers)
    return max(LEAST_TOKENS, room // kept)
