"""Compilation of a backbone's layers by torch for training (``model.compile``).

Layers are compiled individually: all layers of a kind share the code compiled for the first one, and embeddings, masks,
and poolers are not compiled. Sizes are symbolic, and widths of chunks are multiples of `WIDTH`, as kernels require, so
that a few compilations suffice. Modules are not changed: names of weights, evaluation, and export are not affected.
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
from contrastive_encoders.encoders.kernels.compiler import DEFAULT_BACKEND, configure_compiler
from contrastive_encoders.encoders.kernels.cpu_dropout import fast_dropouts
from contrastive_encoders.encoders.kernels.onednn_layers import fast_linears, replaced
from contrastive_encoders.encoders.kernels.unpadded import PACKED_ATTENTION, packed_attention
from contrastive_encoders.encoders.layers import layers_of, no_layers

WIDTH = 8


class Compiled(NamedTuple):
    """Layers to compile, and the compiler backend. A transformer stores this tuple as a plain attribute, so copies of
    the transformer contain it.
    """

    layers: list[nn.Module]
    backend: str


def compile_layers(how: bool | str, *models: nn.Module) -> None:
    """Mark the layers of these models, in place, for compilation in the next training step.

    Args:
        how: False, True, or the name of another backend of torch's compiler.
        *models: Models with layers.

    Raises:
        InputError: If there is no such backend, or if a model has no layers.
    """
    if how is False:
        return
    backend = DEFAULT_BACKEND if how is True else how
    if backend not in torch.compiler.list_backends(exclude_tags=()):
        usual = ", ".join(sorted(torch.compiler.list_backends()))
        raise InputError(
            key="model.compile", value=how, expected=f"true, false, or a backend of torch.compile, such as {usual}"
        )
    configure_compiler()
    AttentionInterface.register(
        PACKED_ATTENTION, torch.compiler.disable(packed_attention)
    )  # buckets differ between rows
    for model in models:
        trunk = cast(Any, model).base_model
        if not (layers := layers_of(trunk)):
            raise no_layers("model.compile", how, "false", trunk)
        trunk.compiled = Compiled(layers, backend)


def compiled(model: nn.Module) -> Compiled | None:
    return getattr(getattr(model, "base_model", None), "compiled", None)


@contextlib.contextmanager
def fast_layers(model: nn.Module) -> Iterator[None]:
    """Context manager that uses the compiled layers if gradients are enabled and the layers of ``model`` are marked for
    compilation.

    Otherwise, it has the effects of `fast_linears` and `fast_dropouts`.
    """
    found = compiled(model) if torch.is_grad_enabled() else None
    if found is None:
        with fast_linears(model), fast_dropouts(model):
            yield
    else:
        run = _compiled_by(found.backend)
        with replaced(found.layers, lambda layer: functools.partial(run, layer)):
            yield


def round_lengths(lengths: np.ndarray, model: nn.Module, most: int) -> np.ndarray:
    """Round lengths up to multiples of `WIDTH`, but not above ``most``, if the layers of ``model`` are compiled.

    The result is used to divide a batch into chunks.
    """
    return lengths if compiled(model) is None else np.minimum(lengths + -lengths % WIDTH, most)


def _forward(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return type(layer).forward(layer, *args, **kwargs)


@functools.cache
def _compiled_by(backend: str) -> Callable[..., Any]:
    return torch.compile(_forward, backend=backend, dynamic=True)
