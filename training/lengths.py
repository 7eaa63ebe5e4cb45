"""``data.max_length`` is what a training text is cut at, ``model.max_length`` what the encoder reads ever after.

Neither follows the other. Where nobody gave the first, it is the objective's published one, or what the backbone reads
if that is less.
"""

import logging
from typing import Any

from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig

from contracts import InputError
from encoders.backbones import from_pretrained, load_tokenizer
from encoders.lengths import length_to_train, longest_input

log = logging.getLogger(__name__)


def check_lengths(cfg: DictConfig) -> None:
    """Refuse what needs no backbone to be refused; say what ``model.max_length`` alone no longer does."""
    read, cut = cfg.model.get("max_length"), cfg.data.get("max_length")
    if read is None or cut is None:
        return
    _refuse_longer(cut, read, f"model.max_length={read}")
    if _is_default(cfg):
        log.info(
            "model.max_length=%d is what the encoder reads in scores and export; it no longer sets the length of "
            "training texts: they are cut at data.max_length=%d.",
            read,
            cut,
        )


def settle_lengths(cfg: DictConfig, model: Any, data: Any) -> None:
    """The same once the backbone is there; a default of ``data.max_length`` gives way to what it reads.

    Raises:
        InputError: training texts would be longer than the backbone or the encoder can read, or than a prompt allows.
    """
    encoder = getattr(model, "encoder", None)
    if encoder is None or not hasattr(data, "max_length"):  # a model that writes has lengths of its own
        return
    _settle(cfg, data, encoder.longest, encoder.max_length)
    if encoder.appended is not None:
        encoder.appended.room_in(data.max_length)


def settle_without_weights(cfg: DictConfig, data: Any) -> None:
    """The same of what a config and a tokenizer say, to look at batches without a model."""
    if not hasattr(data, "max_length"):
        return
    config, tokenizer = from_pretrained(AutoConfig, cfg.backbone), load_tokenizer(cfg.backbone)
    longest, asked = longest_input(config), cfg.model.get("max_length") if cfg.get("model") else None
    _settle(cfg, data, longest, min(longest, length_to_train(asked, config, tokenizer, cfg.backbone)))


def _settle(cfg: DictConfig, data: Any, longest: int, read: int) -> None:
    most = min(longest, read)
    if data.max_length > most and _is_default(cfg):
        log.info("data.max_length: %d, all that backbone=%s reads (%d otherwise).", most, cfg.backbone, data.max_length)
        data.max_length = most
    _refuse_longer(data.max_length, longest, f"backbone={cfg.backbone}, which takes {longest} tokens")
    _refuse_longer(data.max_length, read, f"the {read} tokens that the encoder reads")


def _is_default(cfg: DictConfig) -> bool:
    return OmegaConf.is_interpolation(cfg.data, "max_length")


def _refuse_longer(cut: int, most: int, of: str) -> None:
    if cut > most:
        raise InputError(
            f"data.max_length={cut}: training texts would be longer than {of}. Set data.max_length={most}, or a larger "
            "model.max_length where the backbone takes more."
        )
