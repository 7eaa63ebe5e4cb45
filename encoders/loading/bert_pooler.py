"""BERT's pooler: a tanh layer on the hidden state of [CLS], whose output is ``pooler_output`` in transformers.

It is "CLS" in DeCLUTR's table 4, and contains the MLP in SimCSE's published checkpoints.
"""

from typing import Any, cast

from torch import nn
from transformers import AutoConfig, AutoModel

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.attention import PREFIX
from contrastive_encoders.encoders.dense import TanhHead
from contrastive_encoders.encoders.loading.backbones import from_pretrained
from contrastive_encoders.encoders.loading.own_encoder import directory_of, has_tanh_layer
from contrastive_encoders.encoders.loading.sentence_transformers_folder import (
    UnsupportedModelError,
    read_encoder_settings,
    read_head,
)


def shipped_pooler(name: str, *, setting: str = "backbone") -> nn.Module:
    """Load the pooler of a transformer, or the tanh layer of a sentence-transformers model with CLS pooling.

    Raises:
        InputError: If the model family has no such layer, or if the checkpoint has no weights for it (transformers
            would initialize them randomly).
    """
    if (written := _cls_dense_layer(directory_of(name))) is not None:
        folder, path = written
        width = int(from_pretrained(AutoConfig, name, setting=setting).hidden_size)
        return cast(nn.Module, read_head(folder, [path], width, setting=setting))
    model, info = from_pretrained(AutoModel, name, setting=setting, output_loading_info=True)
    linear, activation = _layer(model)
    key = f"{PREFIX[setting]}pooling"
    hint = f"Set {key}=cls or {key}=mean."
    if not isinstance(linear, nn.Linear) or not isinstance(activation, nn.Tanh):
        raise InputError(
            key=key,
            value="pooler_output",
            expected="a pooling that does not use BERT's pooler layer, because "
            f"{name} ({model.config.model_type}) does not have this layer",
            hint=hint,
        )
    if lacking := sorted(key for key in info["missing_keys"] if key.startswith("pooler.")):
        raise InputError(
            key=key,
            value="pooler_output",
            expected=f"a pooling that does not use BERT's pooler layer, because {name} has no weights for this layer "
            f"({lacking[0]} is missing)",
            hint=hint,
        )
    head = TanhHead(linear.out_features, seed=0)
    head.linear.load_state_dict(linear.float().state_dict())
    return head


def _cls_dense_layer(name: str) -> tuple[str, str] | None:
    """Return the location of the tanh layer after CLS pooling, as the directory or hub id ``name`` and a path in it, or
    None if the model has no such layer.
    """
    try:
        exported = read_encoder_settings(name, "")
    except UnsupportedModelError:
        return None
    return (name, exported.layers[0]) if exported and has_tanh_layer(name, exported) else None


def _layer(model: Any) -> tuple[Any, Any]:
    """Return the linear layer and the activation of a pooler. In ALBERT, both are attributes of the model."""
    pooler = getattr(model, "pooler", None)
    if isinstance(pooler, nn.Linear):
        return pooler, getattr(model, "pooler_activation", None)
    return getattr(pooler, "dense", None), getattr(pooler, "activation", None)
