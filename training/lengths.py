"""``data.max_length`` is what a training text is cut at, ``model.max_length`` what the encoder reads ever after.

Neither follows the other. Where nobody gave the first, it is the objective's published one, or of pairs and triplets
what covers their texts; and what the backbone reads if that is less.
"""

import logging
from typing import Any

from hydra.utils import get_class, get_object
from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig

from command.config_files import CONFIGS, choices
from contracts import InputError
from encoders.appended_prompt import ids_behind
from encoders.backbones import from_pretrained, load_tokenizer
from encoders.lengths import length_to_train, longest_input
from encoders.objective import Objective
from training.parts import built, data_of

log = logging.getLogger(__name__)


def check_lengths(cfg: DictConfig) -> None:
    """Refuse what needs no backbone to be refused; say what ``model.max_length`` alone no longer does."""
    read = cfg.model.get("max_length")
    for place, keys in data_of(cfg).items():
        cut = keys.get("max_length")
        if read is None or cut is None:
            continue
        _refuse_longer(cut, read, place, f"model.max_length={read}")
        if _is_default(keys):
            log.info(
                "model.max_length=%d is what the encoder reads in scores and export; it no longer sets the length of "
                "training texts: they are cut at %s.max_length=%d.",
                read,
                place,
                cut,
            )


def settle_lengths(cfg: DictConfig, model: Any, data: Any) -> None:
    """The same once the backbone is there; a default of ``data.max_length`` gives way to what it reads.

    Raises:
        InputError: training texts would be longer than the backbone or the encoder can read, or than a prompt allows.
    """
    if isinstance(model, Objective):  # a model that writes has lengths of its own
        encoder, appended = model.encoder, model.encoder.appended
        behind = 0 if appended is None else len(appended.ids)
        _settle(cfg, data, encoder.longest, encoder.max_length, _kept(cfg, behind))
        if appended is not None:
            for one in built(data).values():
                appended.room_in(one.max_length)


def settle_without_weights(cfg: DictConfig, data: Any) -> None:
    """The same of what a config and a tokenizer say, to look at batches without a model."""
    if not any(hasattr(one, "max_length") for one in built(data).values()):
        return
    config, tokenizer = from_pretrained(AutoConfig, cfg.backbone), load_tokenizer(cfg.backbone)
    longest, asked = longest_input(config), cfg.model.get("max_length") if cfg.get("model") else None
    prompt = (cfg.get("model") or {}).get("prompt")
    behind = len(ids_behind(tokenizer, prompt)) if prompt else 0
    read = min(longest, length_to_train(asked, config, tokenizer, cfg.backbone))
    _settle(cfg, data, longest, read, _kept(cfg, behind))


def lengths_of_models(cfg: DictConfig) -> dict[str, int]:
    """What a preview without a model cannot know: the models, by their names, that cut such data at another length
    where nobody says one.
    """
    defaults = [keys for keys in data_of(cfg).values() if keys.get("max_length") is not None and _is_default(keys)]
    found = dict[str, int]()
    if cfg.get("model") or cfg.training_length is not None or not defaults:
        return found
    yields, shown = {get_object(keys._target_).yields for keys in defaults}, {keys.max_length for keys in defaults}
    for name in choices("model"):
        keys: Any = OmegaConf.load(CONFIGS / "model" / f"{name}.yaml")
        model: Any = get_class(keys.model._target_)
        consumes = model.consumes
        fits = yields <= set(consumes if isinstance(consumes, tuple) else (consumes,))
        if fits and keys.get("usual_length") is not None and keys.usual_length not in shown:
            found[name] = keys.usual_length
    return found


def _kept(cfg: DictConfig, behind: int) -> int:
    """Tokens of a prompt that no text may take the place of."""
    return 0 if (cfg.get("model") or {}).get("truncation") == "official" else behind


def _settle(cfg: DictConfig, data: Any, longest: int, read: int, behind: int) -> None:
    most = min(longest, read)
    places = data_of(cfg)
    for place, one in built(data).items():
        keys = places[place]
        if hasattr(one, "settle_length"):  # documents are not cut: spans of them are
            one.settle_length(most, behind)
        if one.max_length > most and _is_default(keys):
            log.info(
                "%s.max_length: %d, all that backbone=%s reads (%d otherwise).",
                place,
                most,
                cfg.backbone,
                one.max_length,
            )
            one.max_length = most
        _refuse_longer(one.max_length, longest, place, f"backbone={cfg.backbone}, which takes {longest} tokens")
        _refuse_longer(one.max_length, read, place, f"the {read} tokens that the encoder reads")


def _is_default(keys: DictConfig) -> bool:
    return OmegaConf.is_interpolation(keys, "max_length")


def _refuse_longer(cut: int, most: int, place: str, of: str) -> None:
    if cut > most:
        raise InputError(
            f"{place}.max_length={cut}: training texts would be longer than {of}. Set {place}.max_length={most}, or a "
            "larger model.max_length where the backbone takes more."
        )
