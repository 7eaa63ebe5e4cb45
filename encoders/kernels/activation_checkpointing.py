"""Activation checkpointing by layer (``model.activation_checkpointing=layers``).

A layer keeps only its input and is recomputed in the backward pass. Within a chunk, a single long text then needs the
memory of one layer and the inputs of all layers (Chen et al., 2016).
Dropout uses the same random numbers in the recomputation.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from contrastive_encoders.encoders.kernels.chunks import LAYERS
from contrastive_encoders.encoders.kernels.onednn_layers import replaced
from contrastive_encoders.encoders.layers import layers_of, no_layers


def check_layers(how: str, model: PreTrainedModel) -> None:
    """Check, if ``how`` is "layers", that a model has layers whose activations can be recomputed.

    Raises:
        InputError: If it has no layers with separate weights.
    """
    if how == LAYERS and not layers_of(cast(PreTrainedModel, model.base_model)):
        hint = "Use on, which recomputes entire chunks."
        raise no_layers("model.activation_checkpointing", LAYERS, "auto, on, or off", model, hint)


@contextlib.contextmanager
def recomputed_layers(
    model: PreTrainedModel, how: str, around: Callable[[], AbstractContextManager[Any]]
) -> Iterator[None]:
    """Context manager that recomputes the activations of the layers of ``model`` in the backward pass if ``how`` is
    "layers" and gradients are enabled.

    The recomputation uses the same replaced ``forward`` functions of submodules, inside the context that ``around``
    creates. Other contexts that change the computation of a layer must be entered before this one.
    """
    enabled = how == LAYERS and torch.is_grad_enabled()
    layers = layers_of(cast(PreTrainedModel, model.base_model)) if enabled else []
    with replaced(layers, lambda layer: _checkpointed(layer, around)):
        yield


def _checkpointed(layer: nn.Module, around: Callable[[], AbstractContextManager[Any]]) -> Callable[..., Any]:
    forward = layer.forward
    inner = {part: part.forward for part in layer.modules() if part is not layer and "forward" in vars(part)}

    def surroundings() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return contextlib.nullcontext(), _again()

    @contextlib.contextmanager
    def _again() -> Iterator[None]:
        with around(), replaced(list(inner), lambda part: inner[part]):
            yield

    def computed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, context_fn=surroundings, **kwargs)

    return computed
