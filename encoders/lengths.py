"""The maximum input length of an encoder."""

from typing import Any

from transformers import PreTrainedTokenizerBase as Tokenizer

from contracts import InputError
from encoders.loading.sentence_transformers_folder import stated_length
from readers.installed_models import find_installed
from readers.model_names import run_folder

USUAL_LENGTH = 512
BEHIND_THE_PAD_ID = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl")  # where their positions start
UNLIMITED = 10**9


def longest_input(config: Any) -> int:
    """Return the number of tokens that the position embeddings allow.

    Models with relative positions allow any length: a T5 has no such setting, and an XLNet has -1.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return UNLIMITED
    if config.model_type in BEHIND_THE_PAD_ID:
        positions -= config.pad_token_id + 1
    return int(positions)


def usual_length(config: Any, tokenizer: Tokenizer, stated: int | None = None) -> int:
    """Return the smallest of 512 and what backbone, tokenizer and sentence-transformers folder (``stated``) allow."""
    return int(min(USUAL_LENGTH, longest_input(config), tokenizer.model_max_length, stated or USUAL_LENGTH))


def length_to_train(asked: int | None, config: Any, tokenizer: Tokenizer, backbone: str) -> int:
    """Return what an encoder that starts from ``backbone`` reads: ``model.max_length``, or the usual.

    Raises:
        InputError: it is more than the backbone can.
    """
    if asked is None:
        return usual_length(
            config, tokenizer, stated_length(run_folder(backbone) or find_installed(backbone) or backbone)
        )
    most = longest_input(config)
    if asked > most:
        raise InputError(
            f"model.max_length={asked}: backbone={backbone} takes {most} tokens. Set it to {most} or less, or to null, "
            f"which reads what the backbone allows, up to {USUAL_LENGTH}."
        )
    return asked
