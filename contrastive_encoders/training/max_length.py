"""Defaults and checks of ``data.max_length`` (training) and ``model.max_length`` (evaluation and export).

The two are independent. The default of the first is the objective's published value, or for pairs and triplets a value
that covers their texts. It is limited to what the backbone reads.
"""

import logging
from typing import Any

from hydra.utils import get_class, get_object
from omegaconf import OmegaConf
from transformers import AutoConfig

from contrastive_encoders.composition.config_files import CONFIGS, choices
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.lengths import USUAL_LENGTH, length_to_train, longest_input, own_length
from contrastive_encoders.encoders.loading.backbones import from_pretrained, load_tokenizer
from contrastive_encoders.encoders.loading.own_encoder import own_encoder
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives import MODEL_CONFIGS
from contrastive_encoders.encoders.objectives.gense import prompt_of
from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig
from contrastive_encoders.encoders.objectives.reranker import Reranker
from contrastive_encoders.encoders.prompt_suffix import ids_behind
from contrastive_encoders.training.build import data_modules
from contrastive_encoders.training.resolve import ResolvedRun

log = logging.getLogger(__name__)


def check_lengths(run: ResolvedRun) -> None:
    """Check lengths as far as possible without the backbone. Log that ``model.max_length`` does not set the length of
    training texts.
    """
    read = getattr(run.model, "max_length", None)
    for place, config in run.datasets.items():
        cut = getattr(config, "max_length", None)
        if read is None or cut is None:
            continue
        _refuse_longer(cut, read, place, f"model.max_length={read}")
        if f"{place}.max_length" in run.unset:
            log.info(
                "model.max_length=%d is what the encoder reads in scores and export; it no longer sets the length of "
                "training texts: they are cut at %s.max_length=%d.",
                read,
                place,
                cut,
            )


def settle_lengths(run: ResolvedRun, model: Any, data: Any) -> None:
    """Check lengths with the backbone, and limit a default of ``data.max_length`` to the length that it reads.

    Raises:
        InputError: training texts would be longer than the backbone or the encoder can read, or than a prompt allows.
    """
    if isinstance(model, Objective):  # a generator has its own lengths
        encoder, appended = model.encoder, model.encoder.appended
        behind = 0 if appended is None else len(appended.ids)
        _settle(run, data, encoder.longest, encoder.max_length, _kept(run, behind))
        if appended is not None:
            for one in data_modules(data).values():
                appended.room_in(one.max_length)
    elif isinstance(model, Reranker):
        _settle(run, data, model.cross_encoder.longest, model.cross_encoder.max_length, 0)


def settle_without_weights(run: ResolvedRun, data: Any) -> None:
    """Set and check lengths with only a config and a tokenizer, to preview batches without a model."""
    if not any(hasattr(one, "max_length") for one in data_modules(data).values()):
        return
    backbone = str(run.backbone)
    config, tokenizer = from_pretrained(AutoConfig, backbone), load_tokenizer(backbone)
    longest, asked = longest_input(config), getattr(run.model, "max_length", None)
    prompt = prompt_of(run.model) if isinstance(run.model, GenSEConfig) else None
    behind = len(ids_behind(tokenizer, prompt)) if prompt else 0
    own = own_encoder(backbone, getattr(run.model, "pooling", None)).exported
    read = length_to_train(asked, own_length(own, config, tokenizer), config, backbone)
    _settle(run, data, longest, read, _kept(run, behind))


def lengths_of_models(run: ResolvedRun) -> dict[str, int]:
    """Return what a preview without a model cannot know: the models, by name, that by default truncate such data at
    another length.
    """
    defaults = [
        config
        for place, config in run.datasets.items()
        if f"{place}.max_length" in run.unset and config.max_length is not None
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


def _kept(run: ResolvedRun, behind: int) -> int:
    """Return the number of prompt tokens that texts must not replace."""
    return 0 if getattr(run.model, "truncation", None) == "official" else behind


def _settle(run: ResolvedRun, data: Any, longest: int, read: int, behind: int) -> None:
    most = min(longest, read)
    by_default = most if getattr(run.model, "max_length", None) else min(most, USUAL_LENGTH)
    for place, one in data_modules(data).items():
        if hasattr(one, "settle_length"):  # documents are not truncated, but the spans in them are
            one.settle_length(by_default, behind)
        if one.max_length > most and f"{place}.max_length" in run.unset:
            log.info(
                "%s.max_length: %d, all that backbone=%s reads (%d otherwise).",
                place,
                most,
                run.backbone,
                one.max_length,
            )
            one.max_length = most
        _refuse_longer(one.max_length, longest, place, f"backbone={run.backbone}, which takes {longest} tokens")
        _refuse_longer(one.max_length, read, place, f"the {read} tokens that the encoder reads")


def _refuse_longer(cut: int, most: int, place: str, of: str) -> None:
    if cut > most:
        raise InputError(
            f"{place}.max_length={cut}: training texts would be longer than {of}. Set {place}.max_length={most}, or a "
            "larger model.max_length where the backbone takes more."
        )
