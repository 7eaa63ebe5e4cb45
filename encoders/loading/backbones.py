"""Load a transformer and its tokenizer. Every failure raises an `InputError`.

For training, a model is loaded with its masked-LM head if required. For inference, only the part that computes hidden
states is loaded. Encoders, encoder-decoders (T5, BART), and decoders (GPT-2) are supported, from a folder, a hub id, or
a checkpoint of a run.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple, cast

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForTextEncoding,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging as transformers_logging

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.attention import (
    PREFIX,
    check_attention,
    is_decoder_alone,
    reads_ahead,
    set_attention,
    set_dropout,
)
from contrastive_encoders.encoders.layers import keep_layers
from contrastive_encoders.encoders.loading.sentence_transformers_folder import EncoderSettings, is_local_path, not_found
from contrastive_encoders.encoders.lora import RECORD, AdapterRecord, restore
from contrastive_encoders.encoders.pooling import pooler_of
from contrastive_encoders.io.checkpoint import load_intact
from contrastive_encoders.io.file_discovery import similar_path_hint
from contrastive_encoders.io.hub import only_local
from contrastive_encoders.io.model_names import append_eos, apply_lower_case, has_checkpoint, resolve_model_name

T5_FAMILY = ("t5", "mt5", "umt5")


def load_tokenizer(backbone: str, *, ends: bool = False) -> Tokenizer:
    """Load the tokenizer of a backbone, and set its padding side to the right.

    A tokenizer without a pad token, such as GPT-2's, pads with the end-of-sequence token: padding is masked and never
    pooled.

    Args:
        backbone: Folder or hub id.
        ends: Whether to append the end-of-sequence token to every text.

    Raises:
        InputError: If there is no tokenizer, or no token to pad with.
    """
    tokenizer = from_pretrained(AutoTokenizer, backbone)
    apply_lower_case(tokenizer, resolve_model_name(backbone).name)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise InputError(
            key="backbone",
            value=backbone,
            expected="a tokenizer with a pad token or an end-of-sequence token, to pad texts of different lengths",
            hint="Set one (tokenizer.pad_token = ...) and save the model again.",
        )
    if ends:
        append_eos(tokenizer, backbone)
    return tokenizer


class NoMaskedLMHeadError(InputError):
    """Raised if a backbone has no head to predict masked tokens. ``reason`` follows its name: "has no masked-LM
    head".
    """

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(**fields)
        self.reason = reason


def load_masked_lm(
    backbone: str,
    *,
    lm_head: bool,
    decoder: bool = False,
    attention: str | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    weights: str | None = None,
    dtype: torch.dtype | str = torch.float32,
) -> PreTrainedModel:
    """Load a transformer in float32, with its masked-LM head if ``lm_head`` is True.

    The masked-LM head of a causal language model is its language-model head, and the model must use bidirectional
    attention.

    Args:
        backbone: Folder or hub id.
        lm_head: Whether to load the masked-LM head.
        decoder: Whether to keep the decoder of an encoder-decoder. Otherwise only its encoder is loaded.
        attention: Value of ``model.attention``.
        dropout: Dropout probability; None keeps the one in the config.
        attention_dropout: Dropout probability of the attention weights; None keeps the one in the config.
        weights: Name of a model with the same config to load the weights from. Default: ``backbone``.
        dtype: Type of the weights. Types other than float32 are for weights that are not going to be used.

    Raises:
        NoMaskedLMHeadError: If the architecture has no masked-LM head, if the checkpoint contains no weights for it
            (transformers would initialize them randomly), or if the model uses causal attention.
        InputError: If the model cannot be loaded.
    """
    config = _config(backbone, attention)
    set_dropout(config, dropout, attention_dropout, backbone)
    weights = weights or backbone
    if not lm_head:
        return load_states(weights, decoder=decoder, config=config, attention=attention, dtype=dtype)
    fills = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    if not fills and not is_decoder_alone(config):
        raise _no_head(backbone, f"a {config.model_type} model has no masked-LM head")
    factory = AutoModelForMaskedLM if fills else AutoModelForCausalLM
    model = _with_head(weights, factory, config, dtype)
    check_attention(model, attention, backbone)
    if not fills and not reads_ahead(model):
        raise NoMaskedLMHeadError(
            "has causal attention",
            key="backbone",
            value=backbone,
            expected="bidirectional attention if model.mlm_weight is above 0, because a masked token is predicted from "
            "the tokens on both sides",
            hint="Set model.attention=bidirectional, or model.mlm_weight=0.",
        )
    return model


def load_states(
    name: str,
    *,
    decoder: bool,
    setting: str = "backbone",
    config: Any = None,
    attention: str | None = None,
    dtype: torch.dtype | str = torch.float32,
) -> PreTrainedModel:
    """Load a transformer without heads, and without the decoder of an encoder-decoder unless ``decoder`` is True.

    Raises:
        InputError: If the model cannot be loaded, or lacks weights, which transformers would initialize randomly.
    """
    if config is None:
        config = _config(name, attention, setting)
    factory = states_class(config, decoder=decoder)
    options: dict[str, Any] = {"config": config, "dtype": dtype, "output_loading_info": True}
    model, info = from_pretrained(factory, name, setting=setting, **options)
    unused = ("pooler.",) if decoder else ("pooler.", "decoder.")
    missing = sorted(key for key in info["missing_keys"] if not key.startswith(unused))
    if decoder and any(key.startswith("decoder.") for key in missing):
        raise InputError(
            key=f"{PREFIX[setting]}pooling",
            value="first_decoder",
            expected=f"a pooling that needs no decoder, because {name} has no decoder weights",
        )
    check_weights(name, setting, missing or sorted(str(key[0]) for key in info["mismatched_keys"]))
    check_attention(model, attention, name, setting=setting)
    return _without_pooler(model, info["missing_keys"])


def check_weights(name: str, setting: str, wrong: Sequence[str]) -> None:
    """Check that no weights of a model are missing or of another shape; ``wrong`` are the names of such weights.

    Raises:
        InputError: If there are any.
    """
    if wrong:
        raise InputError(
            key=setting,
            value=name,
            expected=f"weights that fit config.json, but {', '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''} "
            f"{'is' if len(wrong) == 1 else 'are'} missing or of another shape",
            hint="The copy may be incomplete: download or copy the model again.",
        )


def _config(name: str, attention: str | None, setting: str = "backbone") -> Any:
    config = from_pretrained(AutoConfig, name, setting=setting)
    config.output_hidden_states = False  # some exported folders enable it
    set_attention(config, attention, name, setting=setting)
    return config


def states_class(config: Any, *, decoder: bool) -> Any:
    """Return the auto class of transformers for models without heads, which return hidden states.

    The encoder of a T5 has a separate class, which saves a standard model folder.
    """
    return AutoModelForTextEncoding if config.model_type in T5_FAMILY and not decoder else AutoModel


def load_complete(factory: Any, name: str, refused: Callable[[str], InputError], **options: Any) -> PreTrainedModel:
    """Load a model, and check that its checkpoint contains all weights, because transformers would initialize missing
    weights randomly.

    If the checkpoint contains a pooler, it is stored on the trunk with `keep_pooler`.

    Raises:
        InputError: If the model cannot be loaded. For missing weights, ``refused`` creates the error from a message.
    """
    model, info = from_pretrained(factory, name, output_loading_info=True, **options)
    if missing := sorted(info["missing_keys"]):
        raise refused(f"its checkpoint lacks {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}")
    if any("pooler." in key for key in info["unexpected_keys"]):
        keep_pooler(model.base_model, kept_pooler(load_states(name, decoder=False)))
    return cast(PreTrainedModel, model)


def check_vocabulary(
    transformer: PreTrainedModel, tokenizer: Tokenizer, name: str, *, setting: str = "backbone"
) -> None:
    """Check that the model has an embedding for every token of the tokenizer.

    Raises:
        InputError: If the tokenizer has more tokens than the model has embeddings.
    """
    rows = cast(nn.Embedding, transformer.get_input_embeddings()).num_embeddings
    if len(tokenizer) > rows:
        raise InputError(
            key=setting,
            value=name,
            expected=f"a tokenizer with at most {rows} tokens, the number of the model's embeddings, but it has "
            f"{len(tokenizer)}",
            hint="Use the tokenizer of these weights, or enlarge the embeddings (resize_token_embeddings) and save the "
            "model.",
        )


def _with_head(name: str, factory: Any, config: Any, dtype: torch.dtype | str = torch.float32) -> PreTrainedModel:
    """Load a model with its language-model head.

    The ``encoder/`` folder of a run contains no head. The head is read from the checkpoint, or from the base model of
    the adapters in the checkpoint.
    """
    if not has_checkpoint(name):
        return load_complete(factory, name, partial(_no_head, name), config=config, dtype=dtype)
    folder = Path(name)
    best = folder / "checkpoints" / "best.ckpt"
    hint = "Copy an intact checkpoint there."
    state = load_intact(best, f"a run with an intact {best.name}", key="backbone", value=folder, hint=hint)
    if record := state.get(RECORD):
        return restore(_with_head(record["base"], factory, config), record, state["state_dict"], f"backbone={folder}")
    weights = {
        name.removeprefix("encoder.transformer."): value
        for name, value in state["state_dict"].items()
        if name.startswith("encoder.transformer.")
    }
    model = factory.from_config(config, dtype=torch.float32)
    outcome = model.load_state_dict(weights, strict=False)
    if outcome.missing_keys or outcome.unexpected_keys:
        raise _no_head(str(folder), "the run was trained without a masked-LM head")
    if hasattr(model.base_model, "pooler"):
        keep_pooler(model.base_model, kept_pooler(load_states(name, decoder=False)))
    return cast(PreTrainedModel, model)


def _without_pooler(model: PreTrainedModel, missing: Collection[str]) -> PreTrainedModel:
    """Remove the pooler from a model in place. It is not used, and DDP rejects weights that never get a gradient.

    If its weights are not ``missing`` in the checkpoint, it is stored for the export, which calls `kept_pooler`.
    """
    pooler = getattr(model, "pooler", None)
    if isinstance(pooler, nn.Module):
        model.register_module("pooler", None)
        if not any(key.startswith("pooler.") for key in missing):
            keep_pooler(model, pooler)
    return model


def keep_pooler(model: PreTrainedModel, pooler: nn.Module | None) -> None:
    """Store the pooler of a backbone as an attribute of the model, so that it can be exported.

    A tuple around it prevents PyTorch from registering it as a submodule.
    """
    vars(model)["kept_pooler"] = () if pooler is None else (pooler,)


def kept_pooler(model: PreTrainedModel) -> nn.Module | None:
    """Return the pooler that `keep_pooler` has stored in a model, or None if there is none."""
    return next(iter(vars(model).get("kept_pooler", ())), None)


def _no_head(backbone: str, why: str) -> NoMaskedLMHeadError:
    return NoMaskedLMHeadError(
        "has no masked-LM head",
        key="backbone",
        value=backbone,
        expected=f"a model with a masked-LM head, which MLM needs ({why})",
        hint="Set model.mlm_weight=0, or choose a masked LM such as BERT, RoBERTa, or MPNet.",
    )


def from_pretrained(factory: Any, name: str, *, setting: str = "backbone", **options: Any) -> Any:
    """Load a config, tokenizer, or model with transformers.

    The weights of a GGUF file are dequantized to the requested type: they are trained and saved like any others.

    Args:
        factory: Auto class of transformers.
        name: Folder, file, or hub id.
        setting: Name of the setting in error messages.
        **options: Keyword arguments of ``factory.from_pretrained``.

    Raises:
        InputError: If loading fails.
    """
    found = resolve_model_name(name, setting)
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()  # its loading report lists keys that are dropped on purpose
    transformers_logging.disable_progress_bar()  # it would show for a few milliseconds
    try:
        options |= found.options
        if found.gguf_file and factory not in (AutoConfig, AutoTokenizer):
            from transformers import GgufConfig  # lazy: only GGUF files need a version that has it

            options["quantization_config"] = GgufConfig(dequantize=True)
        weights = factory not in (AutoConfig, AutoTokenizer)
        local = only_local(found.name, weights=weights, gguf_file=found.gguf_file)
        if weights:  # transformers looks for an adapter, and would ask the hub
            options["adapter_kwargs"] = {"local_files_only": local}
        return factory.from_pretrained(found.name, trust_remote_code=False, local_files_only=local, **options)
    except NOT_LOADED as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if isinstance(error, UnpicklingError):  # the message of torch recommends loading it anyway
            reason = "its weights are a pickle file, which could run code and is never loaded"
        if not Path(name).exists() and (is_local_path(name) or similar_path_hint(Path(name))):
            raise not_found(name, reason, setting) from error
        raise InputError(
            key=setting,
            value=name,
            expected=f"a model that can be loaded ({reason.rstrip('.')})",
            hint="Use the id of a model on the Hugging Face Hub, or a directory with config.json, model.safetensors, "
            "and the tokenizer (needed if the hub is unreachable).",
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


NOT_LOADED = (OSError, ValueError, KeyError, ImportError, RuntimeError, UnpicklingError, SafetensorError)
ENCODER_PREFIX = "encoder.transformer."  # prefix of the weights' names in a checkpoint
HEAD_PREFIX = "encoder.head."
PROMPTS = "prompts"  # key in a checkpoint: prompts of the encoder, if it has any
POST_POOLING_KEY = "behind_pooling"  # key in a checkpoint: settings of the layers after the pooling


class CheckpointInfo(NamedTuple):
    """Weights and settings of an encoder that are read from a checkpoint of a run."""

    settings: EncoderSettings  # ``transformer`` is the backbone
    weights: dict[str, torch.Tensor]  # names as in the transformer
    head: dict[str, torch.Tensor]  # weights of the layers after the pooling that belong to the encoder
    layers: list[dict[str, Any]]  # options of each layer in ``head``
    append_eos: bool
    attention: str | None
    adapters: AdapterRecord | None  # description of the adapters, if ``weights`` are adapters
    kept: int | Sequence[int] | None  # layers of the backbone that were kept; None: all


def without_extras(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model without its pooler and, if the model is an encoder-decoder, without its decoder."""
    # Not config.is_encoder_decoder, which is false for a T5 that was saved as an encoder only
    if getattr(model, "encoder", None) is not None and getattr(model, "decoder", None) is not None:
        model = cast(PreTrainedModel, model.get_encoder())
    return _without_pooler(model, ["pooler."])


def read_checkpoint(path: Path) -> CheckpointInfo:
    """Read the encoder weights and settings from a checkpoint of a run.

    Raises:
        InputError: If the file is damaged or is not a checkpoint of this package.
    """
    hint = "Use another checkpoint from this directory, or copy this one again."
    found = load_intact(path, "an intact checkpoint", key="encoder", value=path, hint=hint)
    state, settings = found.get("state_dict"), found.get("hyper_parameters")
    weights, head = (
        {name.removeprefix(prefix): value for name, value in (state or {}).items() if name.startswith(prefix)}
        for prefix in (ENCODER_PREFIX, HEAD_PREFIX)
    )
    whole = {"max_length", POST_POOLING_KEY} <= found.keys() and {"backbone", "pooling"} <= (settings or {}).keys()
    if not weights or not settings or not whole:
        raise InputError(
            key="encoder",
            value=path,
            expected="a checkpoint of a run, with the weights and settings of an encoder",
            hint="Use checkpoints/best.ckpt of a run, or a directory with config.json and weights.",
        )
    behind = found[POST_POOLING_KEY]
    return CheckpointInfo(
        EncoderSettings(
            str(settings["backbone"]),
            pooler_of(settings["pooling"]),
            behind["normalize"],
            found["max_length"],
            EncoderPrompts(**found.get(PROMPTS) or {}),
            prompt_suffix=settings.get("prompt_suffix") or "",
            truncate=behind.get("truncate"),
        ),
        weights,
        head,
        behind["layers"],
        bool(settings.get("append_eos")),
        settings.get("attention"),
        found.get(RECORD),
        settings.get("keep_layers"),
    )


def trunk_of_checkpoint(
    path: Path,
    trained: CheckpointInfo,
    architecture: str,
    *,
    decoder: bool,
    attention: str | None = None,
    whole: bool = True,
) -> PreTrainedModel:
    """Build the transformer of a checkpoint and load its weights.

    Args:
        path: Path of the checkpoint, for error messages.
        trained: Content of the checkpoint.
        architecture: Folder or hub id with the config of the transformer.
        decoder: Whether to keep the decoder of an encoder-decoder.
        attention: Overrides the attention that the model was trained with.
        whole: Whether the config describes the full backbone. Otherwise, it describes only the kept layers.

    Raises:
        InputError: If the weights do not fit the architecture.
    """
    config = _config(architecture, trained.attention if attention is None else attention, "encoder")
    if trained.adapters is not None:
        return _adapted(path, trained, config, decoder=decoder).eval()
    model = states_class(config, decoder=decoder).from_config(config, dtype=torch.float32)
    keep_layers(model, trained.kept if whole else None, trained.settings.transformer)
    model = model if decoder else without_extras(model)
    prefix = f"{model.base_model_prefix}."
    with_head = any(name.startswith(prefix) for name in trained.weights)
    weights = {
        name.removeprefix(prefix): value
        for name, value in trained.weights.items()
        if not with_head or name.startswith(prefix)
    }
    try:
        missing = set(model.load_state_dict(weights, strict=False).missing_keys)
    except RuntimeError as error:  # shapes differ
        raise _architecture_error(path, architecture, str(error).splitlines()[-1].strip()) from error
    if absent := [name for name, _ in model.named_parameters() if name in missing]:
        raise _architecture_error(path, architecture, f"the checkpoint has no {absent[0]}")
    return model.eval()


def _adapted(path: Path, trained: CheckpointInfo, config: Any, *, decoder: bool) -> PreTrainedModel:
    record = cast(AdapterRecord, trained.adapters)
    model = load_states(record["base"], decoder=trained.settings.pooler.decodes, setting="encoder", config=config)
    prefix = record["prefix"].removeprefix(ENCODER_PREFIX)
    model = restore(model, AdapterRecord(**{**record, "prefix": prefix}), trained.weights, f"encoder={path}")
    return model if decoder else without_extras(model)


def _architecture_error(path: Path, architecture: str, why: str) -> InputError:
    return InputError(
        key="encoder",
        value=path,
        expected=f"weights of the architecture of {architecture} ({why})",
        hint="The backbone may have changed: restore the one that the run started with.",
    )
