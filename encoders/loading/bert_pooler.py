"""The tanh layer of BERT behind [CLS], whose output transformers calls ``pooler_output``.

DeCLUTR's table 4 scores it as "CLS", and SimCSE's published checkpoints hold their MLP there.
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
    read_exported,
    read_head,
)


def shipped_pooler(name: str, *, setting: str = "backbone") -> nn.Module:
    """Return the layer of a folder or hub id; of a sentence-transformers folder with CLS and a tanh layer, that one.

    Raises:
        InputError: the family has no such layer, or the checkpoint no weights for it, which transformers would draw.
    """
    if (written := _behind_cls(directory_of(name))) is not None:
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
            expected=f"a pooling without a tanh layer behind [CLS], which {setting}={name}, a "
            f"{model.config.model_type}, does not have",
            hint=hint,
        )
    if lacking := sorted(key for key in info["missing_keys"] if key.startswith("pooler.")):
        raise InputError(
            key=key,
            value="pooler_output",
            expected=f"a pooling without a tanh layer behind [CLS], as {setting}={name} was saved without {lacking[0]}",
            hint=hint,
        )
    head = TanhHead(linear.out_features, seed=0)
    head.linear.load_state_dict(linear.float().state_dict())
    return head


def _behind_cls(name: str) -> tuple[str, str] | None:
    """Return the directory, and in it the Dense behind CLS."""
    try:
        exported = read_exported(name, "")
    except UnsupportedModelError:
        return None
    return (name, exported.layers[0]) if exported and has_tanh_layer(name, exported) else None


def _layer(model: Any) -> tuple[Any, Any]:
    """The linear layer and what follows it; ALBERT has them side by side."""
    pooler = getattr(model, "pooler", None)
    if isinstance(pooler, nn.Linear):
        return pooler, getattr(model, "pooler_activation", None)
    return getattr(pooler, "dense", None), getattr(pooler, "activation", None)
