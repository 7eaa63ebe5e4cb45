"""Attention (causal or bidirectional) and dropout of a backbone, as set in its transformers config.

transformers reads and saves ``config.is_causal``, so that an exported folder is used as it was trained. Model families
that build their own masks ignore this entry. Only the hidden states show which attention such a model computes.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, PreTrainedModel

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.pooling import Pooler

ATTENTION = ("causal", "bidirectional")
PREFIX = {"backbone": "model.", "encoder": ""}  # prefix of settings, by the setting that names the model
MIN_TRANSFORMERS_VERSION = "5.4"  # version of transformers; older ones ignore ``is_causal`` for some families
TOLERANCE = 1e-6
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
# Config names of dropout: of attention weights, and of hidden states and embeddings
ATTENTION_DROPOUT_NAMES = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop")
STATE_DROPOUT_NAMES = (
    "hidden_dropout_prob",
    "hidden_dropout",
    "dropout",
    "dropout_rate",
    "resid_pdrop",
    "resid_dropout",
    "mlp_dropout",
    "residual_dropout",
    "embd_pdrop",
    "embed_dropout",
    "embedding_dropout",
    "emb_pdrop",
)


def set_attention(config: Any, attention: str | None, name: str, *, setting: str = "backbone") -> None:
    """Set causal or bidirectional attention in a transformers config.

    Args:
        config: Config to change in place.
        attention: "causal" or "bidirectional"; None does not change the config.
        name: Name of the model.
        setting: Name of the setting that names the model.

    Raises:
        InputError: If the value is unknown, or if the attention of this model cannot be chosen.
    """
    if attention is None:
        return
    if attention not in ATTENTION:
        raise InputError(
            key=f"{PREFIX[setting]}attention", value=attention, expected=f"null, {', or '.join(ATTENTION)}"
        )
    if not is_decoder_alone(config):
        raise InputError(
            key=f"{PREFIX[setting]}attention",
            value=attention,
            expected=f"null, because {name} is a {config.model_type} model, whose attention is always bidirectional",
            hint="Leave attention unset, or choose a causal language model.",
        )
    config.is_causal = attention == "causal"


def is_decoder_alone(config: Any) -> bool:
    """Return whether a config describes a decoder-only language model."""
    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING


def set_dropout(config: Any, everywhere: float | None, in_attention: float | None, backbone: str) -> None:
    """Set the dropout probabilities in a transformers config, under the names that the model family uses.

    Args:
        config: Config to change in place.
        everywhere: Dropout of attention weights, hidden states, and embeddings; None does not change it.
        in_attention: Dropout of attention weights, which overrides ``everywhere``; None does not change it.
        backbone: Name of the backbone, for error messages.

    Raises:
        InputError: If the family has no such dropout.
    """
    for key, probability, known in (
        ("dropout", everywhere, ATTENTION_DROPOUT_NAMES + STATE_DROPOUT_NAMES),
        ("attention_dropout", in_attention, ATTENTION_DROPOUT_NAMES),
    ):
        if probability is None:
            continue
        names = [name for name in known if isinstance(getattr(config, name, None), int | float)]
        if not names:
            raise InputError(
                key=f"model.{key}",
                value=probability,
                expected=f"null, because {backbone} is a {config.model_type} model, whose config has no entry for this "
                "dropout probability",
            )
        for name in names:
            setattr(config, name, probability)


def has_dropout(encoder: nn.Module) -> bool:
    """Return whether any module of an encoder has a dropout probability above 0.

    Modules that store the probability as a number, such as Llama's attention and BART's layers, are included.
    """
    return any(
        (isinstance(module, DROPOUT) and module.p > 0)
        or any("drop" in name and isinstance(value, float) and value > 0 for name, value in vars(module).items())
        for module in encoder.modules()
    )


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Context manager in which a module is in evaluation mode, without dropout. On exit, the mode of every submodule is
    restored.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def is_causal(config: Any) -> bool:
    """Return whether the config of a decoder specifies causal attention. The result has no meaning for encoders."""
    return getattr(config, "is_causal", True) is not False


def check_attention(
    transformer: PreTrainedModel, attention: str | None, name: str, *, setting: str = "backbone"
) -> None:
    """Check that a model computes the kind of attention that was configured, causal or bidirectional.

    Raises:
        InputError: If the model computes the other one.
    """
    if attention is not None and reads_ahead(transformer) != (attention == "bidirectional"):
        kind = "bidirectional" if attention == "causal" else "causal"
        raise InputError(
            key=f"{PREFIX[setting]}attention",
            value=attention,
            expected=f"null, because transformers computes {kind} attention for {name}, a "
            f"{transformer.config.model_type} model, regardless of its config",
            hint="Leave attention unset, or choose another model family (Llama, Mistral, Qwen, Gemma, Phi, GPT-2 ...).",
        )


def check_first_token(transformer: PreTrainedModel, pooler: Pooler, name: str, *, setting: str = "backbone") -> None:
    """Check that the pooling uses more than the first token if the model is causal, because the first token of a causal
    model attends only to itself.

    Raises:
        InputError: If it uses only the first token.
    """
    if pooler.reads_first_token and is_decoder_alone(transformer.config) and not reads_ahead(transformer):
        prefix = PREFIX[setting]
        raise InputError(
            key=f"{prefix}pooling",
            value=pooler.name,
            expected="a pooling that uses more than the first token, which attends to no other token in the causal "
            f"language model {name}",
            hint=f"Set {prefix}pooling=mean, or {prefix}attention=bidirectional.",
        )


@torch.no_grad()
def reads_ahead(transformer: PreTrainedModel) -> bool:
    """Return whether the attention of a model is bidirectional, for a single text and in a padded batch: whether the
    first hidden state depends on the last token.
    """
    trunk = transformer.base_model
    device = next(trunk.parameters()).device
    ids_BT = torch.arange(5, 13, device=device).repeat(2, 1)
    mask_BT = torch.ones_like(ids_BT)
    mask_BT[1, 4:] = 0
    other_BT = ids_BT.clone()
    other_BT[0, -1] = 3
    with evaluation_mode(transformer):
        moved = list[bool]()
        for rows in (1, 2):
            states = [
                trunk(input_ids=ids[:rows], attention_mask=mask_BT[:rows], use_cache=False).last_hidden_state[0, 0]
                for ids in (ids_BT, other_BT)
            ]
            moved.append(bool((states[0] - states[1]).abs().max() > TOLERANCE))
    return all(moved)
