"""Defaults and checks of ``data.max_length`` (training) and ``model.max_length`` (evaluation and export).

The first is at most the second, and the second at most the maximum of the backbone. The default of the first is the
objective's published value, or for pairs and triplets a length that covers their texts. This length is at most
`USUAL_LENGTH`, unless ``model.max_length`` is set.
"""

import logging
from typing import Any

from hydra.utils import get_class, get_object
from omegaconf import OmegaConf
from transformers import AutoConfig

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.lengths import USUAL_LENGTH, length_to_train, longest_input, own_length
from contrastive_encoders.encoders.loading.backbones import from_pretrained, load_tokenizer
from contrastive_encoders.encoders.loading.own_encoder import own_encoder
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.encoders.objectives.gense import prompt_of
from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig
from contrastive_encoders.encoders.objectives.reranker import Reranker
from contrastive_encoders.encoders.prompt_suffix import prompt_ids_after_text
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.composition.config_files import CONFIGS, choices
from contrastive_encoders.training.resolve import ResolvedRun

log = logging.getLogger(__name__)


def check_lengths(run: ResolvedRun) -> None:
    """Check that the maximum lengths in the config are consistent, before the backbone is loaded. Log that
    ``model.max_length`` does not set the length of training texts.
    """
    read = getattr(run.model, "max_length", None)
    for place, config in run.datasets.items():
        cut = getattr(config, "max_length", None)
        if read is None or cut is None:
            continue
        _refuse_longer(cut, read, place, "model.max_length")
        if f"{place}.max_length" in run.inherited:
            log.info(
                "model.max_length=%d applies to evaluation and export. Training texts are truncated to "
                "%s.max_length=%d tokens.",
                read,
                place,
                cut,
            )


def settle_lengths(run: ResolvedRun, model: Any, data: Any) -> None:
    """Check that the maximum lengths do not exceed the maximum length of the backbone. A published value of
    ``data.max_length`` that the user has not set is reduced to the maximum length of the backbone.

    Raises:
        InputError: training texts would be longer than the backbone or the encoder can read, or than a prompt allows.
    """
    if isinstance(model, Objective):  # a generator has its own lengths
        encoder, suffix = model.encoder, model.encoder.appended
        suffix_tokens = 0 if suffix is None else len(suffix.ids)
        _settle(run, data, encoder.longest, encoder.max_length, _reserved(run, suffix_tokens))
        if suffix is not None:
            for one in data_modules(data).values():
                suffix.room_in(one.max_length)
    elif isinstance(model, Reranker):
        _settle(run, data, model.cross_encoder.longest, model.cross_encoder.max_length, 0)


def settle_without_weights(run: ResolvedRun, data: Any) -> None:
    """Set and check the maximum lengths with only the backbone's config and tokenizer, for a preview without a
    model.
    """
    if not any(hasattr(one, "max_length") for one in data_modules(data).values()):
        return
    backbone = str(run.backbone)
    config, tokenizer = from_pretrained(AutoConfig, backbone), load_tokenizer(backbone)
    longest, max_length = longest_input(config), getattr(run.model, "max_length", None)
    prompt = prompt_of(run.model) if isinstance(run.model, GenSEConfig) else None
    suffix_tokens = len(prompt_ids_after_text(tokenizer, prompt)) if prompt else 0
    own = own_encoder(backbone, getattr(run.model, "pooling", None)).exported
    read = length_to_train(max_length, own_length(own, config, tokenizer), config, backbone)
    _settle(run, data, longest, read, _reserved(run, suffix_tokens))


def lengths_of_models(run: ResolvedRun) -> dict[str, int]:
    """Return a mapping of model names to default maximum training lengths in tokens, for models whose default differs
    from that of the preview. A preview without a model cannot know which applies.
    """
    defaults = [
        config
        for place, config in run.datasets.items()
        if f"{place}.max_length" in run.inherited and config.max_length is not None
    ]
    found = dict[str, int]()
    if run.model is not None or run.train_max_length is not None or not defaults:
        return found
    yields, shown = (
        {get_object(config.target).yields for config in defaults},
        {config.max_length for config in defaults},
    )
    for name in choices("model"):
        keys: Any = OmegaConf.load(CONFIGS / "model" / f"{name}.yaml")
        model: Any = get_class(MODEL_CONFIGS[name].target)
        consumes = model.consumes
        fits = yields <= set(consumes if isinstance(consumes, tuple) else (consumes,))
        if fits and keys.get("default_train_max_length") is not None and keys.default_train_max_length not in shown:
            found[name] = keys.default_train_max_length
    return found


def _reserved(run: ResolvedRun, suffix_tokens: int) -> int:
    """Return the number of tokens that are reserved for the prompt when texts are truncated."""
    return 0 if getattr(run.model, "truncation", None) == "official" else suffix_tokens


def _settle(run: ResolvedRun, data: Any, longest: int, read: int, reserved: int) -> None:
    limit = min(longest, read)
    default = limit if getattr(run.model, "max_length", None) else min(limit, USUAL_LENGTH)
    for place, one in data_modules(data).items():
        if hasattr(one, "settle_length"):  # documents are not truncated, but the spans in them are
            one.settle_length(default, reserved)
        if one.max_length > limit and f"{place}.max_length" in run.inherited:
            log.info(
                "%s.max_length is reduced from %d to %d, the maximum of backbone=%s.",
                place,
                one.max_length,
                limit,
                run.backbone,
            )
            one.max_length = limit
        _refuse_longer(one.max_length, longest, place, f"backbone={run.backbone}")
        _refuse_longer(one.max_length, read, place, "the encoder")


def _refuse_longer(length: int, limit: int, place: str, of: str) -> None:
    if length > limit:
        raise InputError(
            key=f"{place}.max_length",
            value=length,
            expected=f"at most {limit}, the maximum length of {of}",
            hint=f"Set {place}.max_length={limit}, or increase model.max_length if the backbone supports it.",
        )
