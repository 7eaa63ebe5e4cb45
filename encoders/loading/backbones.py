"""Loading of a transformer and its tokenizer, with one clear message on failure.

To be trained: with its masked-LM head where one is wanted. To be used: the part alone that turns tokens into states, of
encoders, encoder-decoders (T5, BART) and decoders (GPT-2), from a folder or hub id or from a checkpoint of ours.
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
from contrastive_encoders.encoders.lora import RECORD, AdapterRecord, restore
from contrastive_encoders.encoders.pooling import Pooler, pooler_of
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.hub import only_local
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.io.model_names import append_end, has_checkpoint, lowercase_if_stated, resolve_model_name

T5_FAMILY = ("t5", "mt5", "umt5")


def load_tokenizer(backbone: str, *, ends: bool = False) -> Tokenizer:
    """The backbone's own tokenizer, which pads at the right; where it has no pad token, as GPT-2's, the end of a
    sequence stands for it: padding is masked and never pooled. With ``ends`` that end closes every text.

    Raises:
        InputError: there is none, or nothing to pad with.
    """
    tokenizer = from_pretrained(AutoTokenizer, backbone)
    lowercase_if_stated(tokenizer, resolve_model_name(backbone).name)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise InputError(
            f"backbone={backbone}: its tokenizer has neither a pad token nor an end of sequence, so sentences of "
            "different length cannot share a batch. Set one (tokenizer.pad_token = ...) and save the folder again."
        )
    if ends:
        append_end(tokenizer, backbone)
    return tokenizer


class NoMaskedLMHeadError(InputError):
    """A backbone that predicts no masked tokens, and why in a few words."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


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
    """A transformer with its masked-LM head, or without one where none is wanted; float32. Of an encoder-decoder it is
    the encoder, or with ``decoder`` both. A causal language model's head is its own, which predicts the next token:
    the model must read both ways. ``weights`` names a model of the same config that has them. ``dtype`` may be another
    one where they are not going to be used.

    Raises:
        NoMaskedLM: the architecture has no such head, or the checkpoint holds no weights for it (transformers would
            draw random ones and go on), or it sees one side alone.
        InputError: nothing can be loaded at all.
    """
    config = from_pretrained(AutoConfig, backbone)
    config.output_hidden_states = False  # on in some exported folders, for others' sake
    set_attention(config, attention, backbone)
    set_dropout(config, dropout, attention_dropout, backbone)
    weights = weights or backbone
    if not lm_head:
        return load_states(weights, decoder=decoder, config=config, attention=attention, dtype=dtype)
    fills = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    if not fills and not is_decoder_alone(config):
        raise _no_head(backbone, f"a {config.model_type} model has none")
    factory = AutoModelForMaskedLM if fills else AutoModelForCausalLM
    model = _with_head(weights, factory, config, dtype)
    check_attention(model, attention, backbone)
    if not fills and not reads_ahead(model):
        raise NoMaskedLMHeadError(
            f"backbone={backbone}: model.mlm_weight above 0 fills gaps from both sides, and this causal language model "
            "sees one alone. Set model.attention=bidirectional, or model.mlm_weight=0.",
            "reads one way",
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
    """Without heads; of an encoder-decoder the encoder alone unless ``decoder``.

    Raises:
        InputError: it cannot be loaded, or lacks weights, which transformers would draw at random.
    """
    if config is None:
        config = from_pretrained(AutoConfig, name, setting=setting)
        config.output_hidden_states = False
        set_attention(config, attention, name, setting=setting)
    factory = states_class(config, decoder=decoder)
    options: dict[str, Any] = {"config": config, "dtype": dtype, "output_loading_info": True}
    model, info = from_pretrained(factory, name, setting=setting, **options)
    unused = ("pooler.",) if decoder else ("pooler.", "decoder.")
    missing = sorted(key for key in info["missing_keys"] if not key.startswith(unused))
    if decoder and any(key.startswith("decoder.") for key in missing):
        raise InputError(
            key=f"{PREFIX[setting]}pooling",
            value="first_decoder",
            expected=f"a pooling that does not read the decoder, whose weights {name} does not have",
        )
    if missing or info["mismatched_keys"]:
        wrong = missing or sorted(str(key[0]) for key in info["mismatched_keys"])
        raise InputError(
            f"{setting}={name}: its weights do not fit its config.json: {', '.join(wrong[:3])} "
            f"{'is' if len(wrong) == 1 else 'and others are' if len(wrong) > 3 else 'are'} missing or of another size. "
            "It may have been cut short while it was copied; fetch it again."
        )
    check_attention(model, attention, name, setting=setting)
    return _without_pooler(model, info["missing_keys"])


def states_class(config: Any, *, decoder: bool) -> Any:
    """What makes the model: a T5's encoder has a class of its own, which saves an ordinary folder."""
    return AutoModelForTextEncoding if config.model_type in T5_FAMILY and not decoder else AutoModel


def load_whole(factory: Any, name: str, refused: Callable[[str], InputError], **options: Any) -> PreTrainedModel:
    """A model whose checkpoint holds all of its weights: transformers would draw those that it lacks at random. Its
    trunk keeps a pooler that the checkpoint holds, too.

    Raises:
        InputError: it cannot be loaded; or the one that ``refused`` makes of what is lacking.
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
    """InputError where the tokenizer knows tokens that the model has no embedding for."""
    rows = cast(nn.Embedding, transformer.get_input_embeddings()).num_embeddings
    if len(tokenizer) > rows:
        raise InputError(
            f"{setting}={name}: its tokenizer has {len(tokenizer)} tokens, and the model embeddings for {rows}. "
            "Use the tokenizer of these weights, or enlarge them (resize_token_embeddings) and save."
        )


def _with_head(name: str, factory: Any, config: Any, dtype: torch.dtype | str = torch.float32) -> PreTrainedModel:
    """The encoder/ of a run has no head: it is in the checkpoint, or below what that adapts."""
    if not has_checkpoint(name):
        return load_whole(factory, name, partial(_no_head, name), config=config, dtype=dtype)
    folder = Path(name)
    best = folder / "checkpoints" / "best.ckpt"
    try:
        state = load_checkpoint(best)
    except CorruptFileError as error:
        raise InputError(f"backbone={folder}: {best.name} cannot be used ({error}). Copy a good one there.") from error
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
        raise _no_head(str(folder), "that run was trained without one")
    if hasattr(model.base_model, "pooler"):
        keep_pooler(model.base_model, kept_pooler(load_states(name, decoder=False)))
    return cast(PreTrainedModel, model)


def _without_pooler(model: PreTrainedModel, missing: Collection[str]) -> PreTrainedModel:
    """Take the pooler out of a model, in place: we pool ourselves, and DDP refuses weights that never get a gradient.
    If its weights are not ``missing`` in the checkpoint, it is kept for the export, where `kept_pooler` finds it.
    """
    pooler = getattr(model, "pooler", None)
    if isinstance(pooler, nn.Module):
        model.register_module("pooler", None)
        if not any(key.startswith("pooler.") for key in missing):
            keep_pooler(model, pooler)
    return model


def keep_pooler(model: PreTrainedModel, pooler: nn.Module | None) -> None:
    """Remember a backbone's own pooler beside its weights, in a tuple, or it would be one of its modules."""
    vars(model)["kept_pooler"] = () if pooler is None else (pooler,)


def kept_pooler(model: PreTrainedModel) -> nn.Module | None:
    """Return the pooler that a backbone came with; None if it had none."""
    return next(iter(vars(model).get("kept_pooler", ())), None)


def _no_head(backbone: str, why: str) -> NoMaskedLMHeadError:
    return NoMaskedLMHeadError(
        f"backbone={backbone} cannot be trained with MLM: no masked-LM head ({why}). Set model.mlm_weight=0, or take a "
        "masked LM such as BERT, RoBERTa, or MPNet.",
        "has no masked-LM head",
    )


def from_pretrained(factory: Any, name: str, *, setting: str = "backbone", **options: Any) -> Any:
    """A config, tokenizer or model of transformers; ``setting`` is what the message calls a name that does not load.

    The weights of a GGUF file are unpacked into the type asked for: they are trained and saved like any other.
    """
    found = resolve_model_name(name, setting)
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()  # its loading report lists keys that we drop on purpose
    transformers_logging.disable_progress_bar()  # of a few milliseconds
    try:
        options |= found.options
        if found.gguf_file and factory not in (AutoConfig, AutoTokenizer):
            from transformers import GgufConfig  # a checkout also runs with versions that lack it, but for such a file

            options["quantization_config"] = GgufConfig(dequantize=True)
        weights = factory not in (AutoConfig, AutoTokenizer)
        local = only_local(found.name, weights=weights, gguf_file=found.gguf_file)
        if weights:  # it looks for an adapter, and would ask the hub for it
            options["adapter_kwargs"] = {"local_files_only": local}
        return factory.from_pretrained(found.name, trust_remote_code=False, local_files_only=local, **options)
    except NOT_LOADED as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if isinstance(error, UnpicklingError):  # torch advises to load it after all
            reason = "its weights are a pickle that could run code, and such are never loaded."
        raise InputError(
            f"{setting}={name} could not be loaded: {reason} Pass the id of a model on the Hugging Face hub, or a "
            "folder with config.json, model.safetensors and the tokenizer (needed where the hub is out of reach)."
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


NOT_LOADED = (OSError, ValueError, KeyError, ImportError, RuntimeError, UnpicklingError, SafetensorError)
ENCODER_PREFIX = "encoder.transformer."  # what the weights' names begin with in a checkpoint
HEAD_PREFIX = "encoder.head."
PROMPTS = "prompts"  # the entry of a checkpoint with the prompts of its encoder, if it has any
POST_POOLING_KEY = "behind_pooling"  # the entry of a checkpoint about what stands behind the pooling


class CheckpointInfo(NamedTuple):
    """What a checkpoint of a run says about its encoder."""

    weights: dict[str, torch.Tensor]  # names as in the transformer
    backbone: str
    pooler: Pooler
    max_length: int
    head: dict[str, torch.Tensor]  # of a layer behind the pooling that stays with the encoder
    prompt_suffix: str
    append_end: bool
    attention: str | None
    adapters: AdapterRecord | None  # what the weights are, where they are adapters
    normalize: bool
    layers: list[dict[str, Any]]  # what ``head`` consists of
    prompts: EncoderPrompts = EncoderPrompts()
    truncate: int | None = None
    kept: int | Sequence[int] | None = None  # layers of the backbone, where not all


def load_trunk(name: str, *, decoder: bool = False, attention: str | None = None) -> PreTrainedModel:
    """Without LM head or pooler, and without a decoder unless it is wanted; float32. Raises InputError."""
    model = load_states(name, decoder=decoder, setting="encoder", attention=attention)
    return model if decoder else without_extras(model)


def without_extras(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder alone where there is a decoder, too, and no pooler."""
    # Not config.is_encoder_decoder: a T5 that was saved as its encoder alone has false there
    if getattr(model, "encoder", None) is not None and getattr(model, "decoder", None) is not None:
        model = cast(PreTrainedModel, model.get_encoder())
    return _without_pooler(model, ["pooler."])


def read_checkpoint(path: Path) -> CheckpointInfo:
    """Raises InputError where the file is damaged or not one of ours."""
    try:
        found = load_checkpoint(path)
    except (OSError, CorruptFileError) as error:
        raise InputError(
            f"encoder={path}: wanted a whole checkpoint, got one that cannot be read ({error}). "
            "Use another one of its folder, or copy it again."
        ) from error
    state, settings = found.get("state_dict"), found.get("hyper_parameters")
    weights, head = (
        {name.removeprefix(prefix): value for name, value in (state or {}).items() if name.startswith(prefix)}
        for prefix in (ENCODER_PREFIX, HEAD_PREFIX)
    )
    whole = {"max_length", POST_POOLING_KEY} <= found.keys() and {"backbone", "pooling"} <= (settings or {}).keys()
    if not weights or not settings or not whole:
        raise InputError(
            f"encoder={path}: wanted a checkpoint of a run here, with the weights of an encoder and its settings; "
            "this one has none. Name checkpoints/best.ckpt of a run, or a folder with config.json and weights."
        )
    backbone, pooling, suffix = (str(settings.get(key) or "") for key in ("backbone", "pooling", "prompt"))
    ends, attention = bool(settings.get("append_end")), settings.get("attention")
    length, adapters, behind = found["max_length"], found.get(RECORD), found[POST_POOLING_KEY]
    kept, prompts = settings.get("layers"), EncoderPrompts(**found.get(PROMPTS) or {})
    return CheckpointInfo(
        *(weights, backbone, pooler_of(pooling), length, head, suffix, ends, attention, adapters),
        **behind,
        prompts=prompts,
        kept=kept,
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
    """``architecture`` is a folder or hub id with the config of the transformer, of the ``whole`` backbone or of the
    layers that were kept; ``attention`` beats what it was trained with."""
    config = from_pretrained(AutoConfig, architecture, setting="encoder")
    config.output_hidden_states = False
    set_attention(config, trained.attention if attention is None else attention, architecture, setting="encoder")
    if trained.adapters is not None:
        return _adapted(path, trained, config, decoder=decoder).eval()
    model = states_class(config, decoder=decoder).from_config(config, dtype=torch.float32)
    keep_layers(model, trained.kept if whole else None, trained.backbone)
    model = model if decoder else without_extras(model)
    prefix = f"{model.base_model_prefix}."
    with_head = any(name.startswith(prefix) for name in trained.weights)
    weights = {
        name.removeprefix(prefix): value
        for name, value in trained.weights.items()
        if not with_head or name.startswith(prefix)
    }
    try:
        missing = _own(model.load_state_dict(weights, strict=False).missing_keys, model)
    except RuntimeError as error:  # sizes
        raise _unlike(path, architecture, str(error).splitlines()[-1].strip()) from error
    if missing:
        raise _unlike(path, architecture, f"it has no {missing[0]}")
    return model.eval()


def _adapted(path: Path, trained: CheckpointInfo, config: Any, *, decoder: bool) -> PreTrainedModel:
    record = cast(AdapterRecord, trained.adapters)
    model = load_states(record["base"], decoder=trained.pooler.decodes, setting="encoder", config=config)
    prefix = record["prefix"].removeprefix(ENCODER_PREFIX)
    model = restore(model, AdapterRecord(**{**record, "prefix": prefix}), trained.weights, f"encoder={path}")
    return model if decoder else without_extras(model)


def _own(names: list[str], model: nn.Module) -> list[str]:
    parameters = dict(model.named_parameters())
    return [name for name in names if name in parameters]


def _unlike(path: Path, architecture: str, why: str) -> InputError:
    return InputError(
        f"encoder={path}: its weights are not of the architecture of {architecture} ({why}). "
        "Was the backbone changed since? Put back the one that the run began with."
    )
