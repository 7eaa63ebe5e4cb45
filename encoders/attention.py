"""Causal or bidirectional attention of decoders, set in the config and verified on the model.
Dropout is set by it, too, under each family's own names.

transformers reads ``config.is_causal``, and saves it, so that an exported folder is read as it was trained. Families
ignore it that make their masks themselves, which nothing but the states can tell.
"""

from typing import Any

import torch
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, PreTrainedModel

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.pooling import Pooler

ATTENTION = ("causal", "bidirectional")
PREFIX = {"backbone": "model.", "encoder": ""}  # of keys, by the one that names the model
FIRST_TO_HONOUR = "5.4"  # of transformers: older ones read some families causally whatever the config says
NOTHING = 1e-6
# As families call their dropout: of attention, and of what is added to the states and of embeddings
OF_ATTENTION = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop")
OF_STATES = (
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
    """Write it into a config of transformers; None leaves what it says. ``setting`` is what gave the ``name``.

    Raises:
        InputError: it is unknown, or this is no model whose attention is a choice.
    """
    if attention is None:
        return
    if attention not in ATTENTION:
        choices = " or ".join(ATTENTION)
        raise InputError(f"{PREFIX[setting]}attention={attention!r} is unknown; choose null or {choices}.")
    if not is_decoder_alone(config):
        raise InputError(
            f"{PREFIX[setting]}attention={attention}: {setting}={name} is a {config.model_type}, which reads both ways "
            "by itself. Leave attention out, or take a causal language model."
        )
    config.is_causal = attention == "causal"


def is_decoder_alone(config: Any) -> bool:
    """Return whether a config is that of a decoder-only language model."""
    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING


def set_dropout(config: Any, everywhere: float | None, in_attention: float | None, backbone: str) -> None:
    """Write both into a config of transformers, under the family's names: the dropout of attention, states and
    embeddings, and that of attention alone, which beats it; None leaves what the config says.

    Raises:
        InputError: the family has no such dropout.
    """
    for key, probability, known in (
        ("dropout", everywhere, OF_ATTENTION + OF_STATES),
        ("attention_dropout", in_attention, OF_ATTENTION),
    ):
        if probability is None:
            continue
        names = [name for name in known if isinstance(getattr(config, name, None), int | float)]
        if not names:
            raise InputError(
                f"model.{key}={probability}: backbone={backbone}, a {config.model_type}, has none. Leave {key} out."
            )
        for name in names:
            setattr(config, name, probability)


def has_dropout(encoder: nn.Module) -> bool:
    """Of modules, or of those that hold their probability as a number, as Llama's attention and BART's layers."""
    return any(
        (isinstance(module, nn.Dropout) and module.p > 0)
        or any("dropout" in name and isinstance(value, float) and value > 0 for name, value in vars(module).items())
        for module in encoder.modules()
    )


def is_causal(config: Any) -> bool:
    """False where the config of a decoder asks for both ways; of an encoder it says nothing."""
    return getattr(config, "is_causal", True) is not False


def check_attention(
    transformer: PreTrainedModel, attention: str | None, name: str, *, setting: str = "backbone"
) -> None:
    """InputError where the model does not read as it was told to."""
    if attention is not None and reads_ahead(transformer) != (attention == "bidirectional"):
        reads = "both ways" if attention == "causal" else "causally"
        raise InputError(
            f"{PREFIX[setting]}attention={attention}: {setting}={name} is a {transformer.config.model_type}, and "
            f"transformers reads this family {reads} whatever its config says. Leave "
            "attention out, or take another family (Llama, Mistral, Qwen, Gemma, Phi, GPT-2 ...)."
        )


def check_first_token(transformer: PreTrainedModel, pooler: Pooler, name: str, *, setting: str = "backbone") -> None:
    """InputError where the first token is pooled, and has seen nothing else."""
    if pooler.reads_first_token and is_decoder_alone(transformer.config) and not reads_ahead(transformer):
        prefix = PREFIX[setting]
        raise InputError(
            key=f"{prefix}pooling",
            value=pooler.name,
            expected=f"a pooling of later tokens than the first, since {name} is a causal language model",
            hint=f"Set {prefix}pooling=mean, or {prefix}attention=bidirectional.",
        )


@torch.no_grad()
def reads_ahead(transformer: PreTrainedModel) -> bool:
    """Whether the first token's state moves when the last token changes, in a row by itself and beside another."""
    trunk, training = transformer.base_model, transformer.training
    device = next(trunk.parameters()).device
    ids_BT = torch.arange(5, 13, device=device).repeat(2, 1)
    mask_BT = torch.ones_like(ids_BT)
    mask_BT[1, 4:] = 0
    other_BT = ids_BT.clone()
    other_BT[0, -1] = 3
    trunk.eval()
    try:
        moved = list[bool]()
        for rows in (1, 2):
            states = [
                trunk(input_ids=ids[:rows], attention_mask=mask_BT[:rows], use_cache=False).last_hidden_state[0, 0]
                for ids in (ids_BT, other_BT)
            ]
            moved.append(bool((states[0] - states[1]).abs().max() > NOTHING))
    finally:
        transformer.train(training)
    return all(moved)
