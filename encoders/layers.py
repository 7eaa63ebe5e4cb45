"""Depth of each weight in a backbone: 0 for the embeddings, 1 to N for the N layers, and N + 1 for all other weights,
such as the head.

The depth determines which weights `freeze` freezes, and the learning rate of the others: discriminative fine-tuning
(Howard and Ruder, 2018, section 3.2), as layer-wise decay in the fine-tuning of ELECTRA (Clark et al., 2020, appendix
B). In ELECTRA, the task's head is two steps above the top layer; here, both have the full learning rate.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from torch import nn
from transformers import PreTrainedModel

from contrastive_encoders.core import InputError

LAYER_COUNT_NAMES = (
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)  # in configs
EMBEDDING_NAME = re.compile(r"embed|(^|[._])emb([._]|$)", re.IGNORECASE)
FREEZE_PATTERN = re.compile(r"embeddings|layers:(\d{1,9})")

NO_SEPARATE_LAYERS = "no separate layers (they may share weights, as in ALBERT)"
log = logging.getLogger(__name__)


class Depths(NamedTuple):
    """Depth of each weight of a transformer (``of``), and the number of its layers (``layers``). The weights after the
    last layer have a larger depth.
    """

    of: dict[nn.Parameter, int]
    layers: int


def depths(transformer: PreTrainedModel) -> Depths:
    """Return the depth of every weight of a transformer.

    The layers of a decoder are counted after those of the encoder. A weight that is used twice,
    such as embeddings in a language-model head, has the lower of the two depths.
    """
    trunk = cast(PreTrainedModel, transformer.base_model)
    found = {weight: 0 for name, weight in trunk.named_parameters() if _is_embedding(trunk, name)}
    layers = layers_of(trunk)
    for depth, layer in enumerate(layers, 1):
        found |= {weight: depth for weight in layer.parameters()}  # T5 has the relative position embeddings in a layer
    return Depths({weight: found.get(weight, len(layers) + 1) for weight in transformer.parameters()}, len(layers))


def no_layers(key: str, value: Any, others: str, model: PreTrainedModel, hint: str | None = None) -> InputError:
    """Return the error about a setting that needs layers with separate weights; ``others`` are values that do not."""
    kind = model.config.model_type
    return InputError(
        key=key, value=value, expected=f"{others}, because a {kind} model has {NO_SEPARATE_LAYERS}", hint=hint
    )


def choose_layers(wanted: int | Sequence[int], num_layers: int, backbone: str) -> list[int]:
    """Return the 0-based indices of the layers to keep.

    Args:
        wanted: Indices, or the number of layers to keep, evenly spaced from the first to the last.
        num_layers: Number of layers of the backbone.
        backbone: Name of the backbone, for error messages.

    Raises:
        InputError: If there are no such layers, or if the indices are not in ascending order.
    """
    if isinstance(wanted, int) and 1 <= wanted <= num_layers:
        return [round(place * (num_layers - 1) / max(wanted - 1, 1)) for place in range(wanted)]
    if (
        isinstance(wanted, int)
        or not wanted
        or sorted({*wanted}) != [*wanted]
        or not 0 <= wanted[0] <= wanted[-1] < num_layers
    ):
        shown = wanted if isinstance(wanted, int) else list(wanted)
        example = ",".join(map(str, sorted({0, num_layers // 2, num_layers - 1})))
        raise InputError(
            key="model.keep_layers",
            value=shown,
            expected=f"the number of layers of {backbone} to keep, from 1 to {num_layers}, or different indices from "
            f"0 to {num_layers - 1} in ascending order, such as [{example}]",
        )
    return [*wanted]


def reduce_config(config: Any, kept: Sequence[int]) -> None:
    """Adapt a config, in place, to the layers that are kept: the number of layers, and all lists with one entry per
    layer.
    """
    number = next((found for name in LAYER_COUNT_NAMES if (found := getattr(config, name, None)) is not None), None)
    for name in LAYER_COUNT_NAMES:
        if getattr(config, name, None) == number:
            setattr(config, name, len(kept))
    for name, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and len(value) == number:  # such as the attention type of each layer
            setattr(config, name, [value[place] for place in kept])


def keep_layers(transformer: PreTrainedModel, wanted: int | Sequence[int] | None, backbone: str) -> list[int] | None:
    """Remove all layers except those to keep from a transformer and its config, in place. Return the indices of the
    kept layers.

    Raises:
        InputError: If there are no such layers, or if the other layers depend on one that is removed.
    """
    if wanted is None:
        return None
    trunk = cast(PreTrainedModel, transformer.base_model)
    stacks = stacks_of(trunk)
    if len(stacks) != 1:
        two = "an encoder and a decoder, not one stack of layers"
        what = two if stacks else NO_SEPARATE_LAYERS
        raise InputError(
            key="model.keep_layers",
            value=wanted if isinstance(wanted, int) else list(wanted),
            expected=f"null, because {backbone} has {what}",
        )
    (name, stack), *_ = stacks.items()
    kept = choose_layers(wanted, len(stack), backbone)
    names = [frozenset(of for of, _ in layer.named_parameters()) for layer in stack]
    if kept[0] != 0 and names[0] != names[kept[0]]:
        raise InputError(
            key="model.keep_layers",
            value=kept,
            expected=f"indices that include 0, because layer 0 of {backbone} has weights that no other layer has",
        )
    trunk.set_submodule(name, nn.ModuleList(stack[place] for place in kept))
    reduce_config(trunk.config, kept)
    if transformer.config is not trunk.config:
        reduce_config(transformer.config, kept)
    log.info(
        "model.keep_layers: %d of the %d layers of backbone=%s are kept: %s", len(kept), len(stack), backbone, kept
    )
    return kept


def freeze(transformer: PreTrainedModel, what: str | None, backbone: str) -> None:
    """Freeze the embeddings and, if ``what`` is ``layers:N``, also the N lowest layers and their adapters, in place.

    Raises:
        InputError: If there are no such layers.
    """
    if what is None:
        return
    wanted, (of, layers) = FREEZE_PATTERN.fullmatch(what), depths(transformer)
    if wanted is None or (wanted[1] and not 1 <= int(wanted[1]) <= layers):
        raise InputError(
            key="freeze",
            value=what,
            expected="embeddings"
            + (
                f", or layers:N with N from 1 to {layers}, for the embeddings and the N lowest layers of {backbone}"
                if layers
                else f", because {backbone} has {NO_SEPARATE_LAYERS}"
            ),
        )
    height = int(wanted[1] or 0)
    for weight, depth in of.items():
        weight.requires_grad_(weight.requires_grad and depth > height)
    still = sum(weight.numel() for weight in of if not weight.requires_grad)
    log.info(
        "freeze=%s: of %.1f million weights of the backbone, %.1f million are frozen: embeddings and %d of %d layers",
        *(what, sum(weight.numel() for weight in of) / 1e6, still / 1e6, height, layers),
    )


def check_decay(transformer: PreTrainedModel, decay: float | None) -> None:
    """Check that the transformer has layers to apply ``layer_decay`` to.

    Raises:
        InputError: If it has none.
    """
    if decay is not None and not depths(transformer).layers:
        raise no_layers("model.layer_decay", decay, "null", transformer)


def decayed_rates(transformer: PreTrainedModel, lr: float, decay: float | None) -> dict[nn.Parameter, float]:
    """Return the learning rates of all weights below the top layer, given ``lr``, the learning rate of the top layer.

    Each lower layer has the rate of the next layer times ``decay``; embeddings have the lowest rate.
    """
    if decay is None:
        return {}
    of, layers = depths(transformer)
    return {weight: lr * decay ** (layers - depth) for weight, depth in of.items() if depth < layers}


def _is_embedding(trunk: nn.Module, name: str) -> bool:
    owner = trunk.get_submodule(name.rpartition(".")[0])
    return isinstance(owner, nn.Embedding) or EMBEDDING_NAME.search(name) is not None


def layers_of(trunk: PreTrainedModel) -> list[nn.Module]:
    """Return the layers of a transformer, from lowest to highest. The list is empty if all layers share their weights,
    as in ALBERT.
    """
    return [layer for stack in stacks_of(trunk).values() for layer in stack]


def stacks_of(trunk: PreTrainedModel) -> dict[str, nn.ModuleList]:
    """Return the stacks of layers of a transformer by module name: one stack, or two stacks for an encoder-decoder."""
    counts = {getattr(trunk.config, name, None) for name in LAYER_COUNT_NAMES}
    stacks = dict[str, nn.ModuleList]()
    for name, module in trunk.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, nn.ModuleList) and len(module) in counts and not inside:
            stacks[name] = module
    return stacks
