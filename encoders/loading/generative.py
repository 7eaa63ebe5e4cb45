"""Checks that a model can generate text, i.e., that its config describes a T5-like encoder-decoder or a causal language
model.

Texts of different lengths are decoded in one batch. Models must therefore use relative positions or accept position
ids, and must not cache anything except keys and values.
"""

from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from contrastive_encoders.compat import is_stateful
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.attention import is_causal, is_decoder_alone
from contrastive_encoders.encoders.loading.backbones import T5_FAMILY

ATTENTION = {"full_attention", "sliding_attention"}  # kinds of layers that see only distances and the padding mask
MASKED_LM_SUFFIX = "ForMaskedLM"
HEADLESS_SUFFIXES = ("EncoderModel", "ForSequenceClassification", "ForTokenClassification")


def is_causal_generator(config: Any, name: str, setting: str = "backbone") -> bool:
    """Return True for a causal language model, which continues its prompt, or False for a T5-like encoder-decoder.

    Raises:
        InputError: If the model is of another type. The message names the setting ``setting``.
    """
    alone = is_decoder_alone(config)
    if why := causal_lm_problem(config) if alone else t5_problem(config):
        raise InputError(
            key=setting,
            value=name,
            expected=f"a model that can generate sentences, but {why}",
            hint="Choose a T5-like encoder-decoder with relative positions (T5, T5 v1.1, Flan-T5, mT5, UMT5), or a "
            "causal language model with a key-value cache (GPT-2, Llama, Qwen, Mistral ...).",
        )
    return alone


def causal_lm_problem(config: Any) -> str:
    """Return the reason why a model cannot be used as a causal language model, or "" if it can."""
    architectures = getattr(config, "architectures", None) or []
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or any(MASKED_LM_SUFFIX in a for a in architectures):
        return f"{'/'.join(architectures) or config.model_type} does not continue text"
    if not is_causal(config) or getattr(config, "use_bidirectional_attention", None) in (True, "all"):
        return "its config has bidirectional attention, with which tokens would attend to later ones"
    kinds = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or [])
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if kinds - ATTENTION or is_stateful(model_class):
        return f"a {config.model_type} caches more than keys and values"
    return ""


def t5_problem(config: Any) -> str:
    """Return the reason why a model cannot be used like a T5, as an encoder-decoder that generates text, or "" if it
    can.
    """
    architectures = getattr(config, "architectures", None) or []
    named = "/".join(architectures) or config.model_type
    if config.model_type not in T5_FAMILY:
        kind = "an encoder-decoder of another family" if getattr(config, "is_encoder_decoder", False) else "no decoder"
        return f"{named} has {kind}"
    if any(one.endswith(HEADLESS_SUFFIXES) for one in architectures):
        return f"{named} has no language-model head"
    if config.decoder_start_token_id is None and config.pad_token_id is None:
        return "its config has neither decoder_start_token_id nor pad_token_id"
    return ""
