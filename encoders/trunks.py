"""The part of a model that turns tokens into states, for models that are only to be used.

Encoders, the encoder of an encoder-decoder (T5, BART), and decoders (GPT-2); from a folder or hub id, or from a
checkpoint of ours.
"""

import pickle
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedModel

from contracts import InputError
from encoders.backbones import from_pretrained, load_states, states_class

UNREADABLE = (RuntimeError, OSError, EOFError, pickle.UnpicklingError, KeyError, ValueError)
OF_OUR_ENCODER = "encoder.transformer."  # what the weights' names begin with in a checkpoint
OF_ITS_HEAD = "encoder.head."


class Trained(NamedTuple):
    """What a checkpoint of a run says about its encoder."""

    weights: dict[str, torch.Tensor]  # names as in the transformer
    backbone: str
    pooling: str
    max_length: int
    head: dict[str, torch.Tensor]  # of a layer behind the pooling that stays with the encoder
    prompt_suffix: str


def load_trunk(name: str, *, decoder: bool = False) -> PreTrainedModel:
    """Without LM head or pooler, and without a decoder unless it is wanted; float32. Raises InputError."""
    model = load_states(name, decoder=decoder, setting="encoder")
    return model if decoder else without_extras(model)


def without_extras(model: PreTrainedModel) -> PreTrainedModel:
    """The encoder alone where there is a decoder, too, and no pooler."""
    if _has_two_halves(model):
        model = cast(PreTrainedModel, model.get_encoder())
    if getattr(model, "pooler", None) is not None:
        model.register_module("pooler", None)
    return model


def _has_two_halves(model: PreTrainedModel) -> bool:
    """Not config.is_encoder_decoder: a T5 that was saved as its encoder alone has false there."""
    return getattr(model, "encoder", None) is not None and getattr(model, "decoder", None) is not None


def read_checkpoint(path: Path) -> Trained:
    """Raises InputError where the file is damaged or not one of ours."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UNREADABLE as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(
            f"encoder={path}: wanted a whole checkpoint, got one that cannot be read (cut short or damaged: {reason}). "
            "Use another one of its folder, or copy it again."
        ) from error
    state = found.get("state_dict") if isinstance(found, dict) else None
    settings = found.get("hyper_parameters") if isinstance(found, dict) else None
    weights, head = (
        {name.removeprefix(prefix): value for name, value in (state or {}).items() if name.startswith(prefix)}
        for prefix in (OF_OUR_ENCODER, OF_ITS_HEAD)
    )
    if not weights or not settings or not {"backbone", "pooling", "max_length"} <= settings.keys():
        raise InputError(
            f"encoder={path}: wanted a checkpoint of a run here, with the weights of an encoder and its settings; "
            "this one has none. Name checkpoints/best.ckpt of a run, or a folder with config.json and weights."
        )
    backbone, pooling, length = str(settings["backbone"]), str(settings["pooling"]), int(settings["max_length"])
    return Trained(weights, backbone, pooling, length, head, str(settings.get("prompt") or ""))


def trunk_of_checkpoint(path: Path, trained: Trained, architecture: str, *, decoder: bool) -> PreTrainedModel:
    """``architecture`` is a folder or hub id with the config of the transformer."""
    config = from_pretrained(AutoConfig, architecture, setting="encoder")
    config.output_hidden_states = False
    model = states_class(config, decoder=decoder).from_config(config, dtype=torch.float32)
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


def _own(names: list[str], model: nn.Module) -> list[str]:
    parameters = dict(model.named_parameters())
    return [name for name in names if name in parameters]


def _unlike(path: Path, architecture: str, why: str) -> InputError:
    return InputError(
        f"encoder={path}: its weights are not of the architecture of {architecture} ({why}). "
        "Was the backbone changed since? Put back the one that the run began with."
    )
