"""``model.compile``: the layers of a backbone are compiled by torch for training.

Layer by layer and not the whole: all layers of a kind share what was made of the first, and embeddings, masks and
poolers stay as they are. Sizes are symbols, and widths of chunks multiples of `WIDTH`, which kernels want, so that a
handful of compilations serves all of them. Nothing of it is in a module: neither the names of weights nor what is
scored and exported know of it.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.kernels.compiler import USUAL, configure_compiler
from contrastive_encoders.encoders.kernels.onednn_layers import fast_linears, replaced
from contrastive_encoders.encoders.kernels.unpadded import BY_RUNS, packed_attention
from contrastive_encoders.encoders.layers import layers_of

WIDTH = 8


class Compiled(NamedTuple):
    """A plain attribute of a trunk, which copies take along."""

    layers: list[nn.Module]
    backend: str


def compile_layers(how: bool | str, *models: nn.Module) -> None:
    """Have the layers of these models compiled at their next training step; in place. ``how`` is false, true, or
    another backend of torch's compiler.

    Raises:
        InputError: there is no such backend, or there are no layers.
    """
    if how is False:
        return
    backend = USUAL if how is True else how
    if backend not in torch.compiler.list_backends(exclude_tags=()):
        usual = ", ".join(sorted(torch.compiler.list_backends()))
        raise InputError(f"model.compile={how}: wanted true, false or a backend of torch's compiler, such as {usual}.")
    configure_compiler()
    AttentionInterface.register(BY_RUNS, torch.compiler.disable(packed_attention))  # runs differ from row to row
    for model in models:
        trunk = cast(Any, model).base_model
        if not (layers := layers_of(trunk)):
            why = f"this {trunk.config.model_type} has no layers with weights of their own"
            raise InputError(f"model.compile={how}: {why}. Set it to false.")
        trunk.compiled = Compiled(layers, backend)


def compiled(model: nn.Module) -> Compiled | None:
    return getattr(getattr(model, "base_model", None), "compiled", None)


@contextlib.contextmanager
def fast_layers(model: nn.Module) -> Iterator[None]:
    """Inside, layers of ``model`` that are to be compiled are where a gradient is wanted; else it is `fast_linears`."""
    found = compiled(model) if torch.is_grad_enabled() else None
    if found is None:
        with fast_linears(model):
            yield
    else:
        run = _compiled_by(found.backend)
        with replaced(found.layers, lambda layer: functools.partial(run, layer)):
            yield


def even(lengths: np.ndarray, model: nn.Module, most: int) -> np.ndarray:
    """Lengths to plan chunks by: multiples of `WIDTH` up to ``most`` where layers are compiled, else as they are."""
    return lengths if compiled(model) is None else np.minimum(lengths + -lengths % WIDTH, most)


def _forward(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return type(layer).forward(layer, *args, **kwargs)


@functools.cache
def _compiled_by(backend: str) -> Callable[..., Any]:
    return torch.compile(_forward, backend=backend, dynamic=True)
