"""Default token budget of a chunk (the maximum number of its tokens), which is derived from the memory of the
device.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import torch
from torch import nn
from transformers import PreTrainedModel

from contrastive_encoders.encoders.kernels.chunks import LAYERS

ACTIVATION_BYTES = 2**33
RECOMPUTED_BYTES_CPU = 3 * 2**23  # of the largest activation in a recomputed chunk; below the 32 MiB of malloc
MIN_TOKENS = 512  # minimum per chunk, regardless of the memory
LAYER_BYTES, INPUT_BYTES = 68, 4  # bytes per feature and token in float32: all activations of a layer, and its input


def resolve_token_budget(
    token_budget: int | None,
    device: torch.device,
    *activation_modules: PreTrainedModel,
    other_modules: Iterable[nn.Module] = (),
    activation_checkpointing: str = "auto",
) -> int:
    """Return ``token_budget``, or the budget that the device's memory allows (`affordable_tokens`) if it is None."""
    return token_budget or affordable_tokens(
        activation_modules, other_modules, memory_of(device), by_layers=activation_checkpointing == LAYERS
    )


def recomputed_budget(token_budget: int, transformer: PreTrainedModel, device: torch.device) -> int:
    """Return the maximum number of tokens of a chunk whose activations are recomputed in the backward pass.

    Larger chunks need more memory. On a CPU, they are also slower: glibc's malloc creates a new mapping for each tensor
    of more than 32 MiB, and the kernel clears its pages. With MiniLM, a chunk has at most 4,096 tokens.
    """
    if device.type != "cpu":
        return token_budget
    mlp_bytes = 4 * 4 * int(transformer.config.hidden_size)  # per token: four times the width, in float32
    return min(token_budget, max(MIN_TOKENS, RECOMPUTED_BYTES_CPU // mlp_bytes))


def memory_of(device: torch.device) -> int | None:
    """Return the total memory of a GPU in bytes, or None for other devices.

    Memory used by other processes is included, so that a resumed run divides its batches as before.
    """
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def affordable_tokens(
    activation_modules: Sequence[PreTrainedModel],
    other_modules: Iterable[nn.Module] = (),
    memory: int | None = None,
    *,
    by_layers: bool = False,
) -> int:
    """Return the number of tokens whose activations fit into the memory of the device.

    If ``memory`` is None, activations may take about 8 GiB in float32: 27,000 tokens of DistilRoBERTa, or 14,000 of
    RoBERTa-base. Otherwise, they may take half of what float32 weights, gradients, and Adam's moments leave free.
    Activations take 34 bytes per layer and feature in half precision, without attention (Korthikanti et al. 2023,
    eq. 1), and twice as much in float32.

    Args:
        activation_modules: Models that each keep the activations of all tokens in a chunk, such as an encoder and
            its decoder.
        other_modules: Further modules whose weights take memory. Shared weights are counted once.
        memory: Total memory in bytes.
        by_layers: Whether layers are recomputed, so that the activations of one layer and the inputs of all layers are
            kept.
    """
    room = ACTIVATION_BYTES
    if memory is not None:
        weights = set(chain.from_iterable(module.parameters() for module in (*activation_modules, *other_modules)))
        room = (memory - sum(one.numel() * (16 if one.requires_grad else one.element_size()) for one in weights)) // 2
    kept = 0
    for half in activation_modules:
        layers, width = int(half.config.num_hidden_layers), int(half.config.hidden_size)
        kept += width * (LAYER_BYTES + INPUT_BYTES * layers if by_layers else LAYER_BYTES * layers)
    return max(MIN_TOKENS, room // kept)
