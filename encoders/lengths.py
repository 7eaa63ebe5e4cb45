"""Maximum input length of an encoder."""

from typing import Any

from transformers import PreTrainedTokenizerBase as Tokenizer

from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.sentence_transformers_folder import EncoderSettings

USUAL_LENGTH = 512
BEHIND_THE_PAD_ID = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl")  # first position: pad id + 1
UNLIMITED = 10**9


def longest_input(config: Any) -> int:
    """Return the maximum number of tokens for which the model has position embeddings.

    Models with relative positions allow any length: T5 has no such setting, and XLNet has -1.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return UNLIMITED
    if config.model_type in BEHIND_THE_PAD_ID:
        positions -= config.pad_token_id + 1
    return int(positions)


def usual_length(config: Any, tokenizer: Tokenizer, stated: int | None = None) -> int:
    """Return the smallest of 512, the limit of the backbone, the limit of the tokenizer, and ``stated`` (if it is not
    None).

    ``stated`` is the maximum length in a sentence-transformers folder.
    """
    return int(min(USUAL_LENGTH, longest_input(config), tokenizer.model_max_length, stated or USUAL_LENGTH))


def own_length(own: EncoderSettings | None, config: Any, tokenizer: Tokenizer) -> int:
    """Return the maximum text length of a backbone: its own setting if it is an encoder, otherwise the default for a
    plain transformer.

    If the backbone is an encoder (``own``), it is the encoder's setting, even if its tokenizer has a lower limit. For a
    plain transformer, it is `usual_length`.
    """
    if own is None:
        return usual_length(config, tokenizer)
    return min(own.max_length or int(tokenizer.model_max_length), longest_input(config))


def length_to_train(requested: int | None, default: int, config: Any, backbone: str) -> int:
    """Return the ``requested`` maximum length (``model.max_length``), or the backbone's default if it is None.

    Raises:
        InputError: If the requested length is more than the backbone allows.
    """
    longest = longest_input(config)
    if requested is not None and requested > longest:
        raise InputError(
            key="model.max_length",
            value=requested,
            expected=f"at most {longest} tokens, the limit of {backbone}",
            hint=f"Set model.max_length={longest} or less, or model.max_length=null for {default}.",
        )
    return requested or default
