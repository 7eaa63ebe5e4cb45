"""Pooling, Dense and Normalize modules and prompts of a backbone's folder, which stay with the trained encoder."""

import logging

from contracts import EncoderPrompts, InputError
from encoders.loading.sentence_transformers_folder import Behind, behind_pooling, read_prompts
from encoders.pooling import POOLERS
from readers.model_names import GGUF, located

log = logging.getLogger(__name__)


def folder_of(backbone: str) -> str:
    """The folder or hub id that has the files of a backbone."""
    return backbone if backbone.endswith(GGUF) else located(backbone).name


def pooling_of(backbone: str) -> str:
    """How the folder of a backbone pools; the mean of a plain transformer.

    Raises:
        InputError: in a way that is none of ours.
    """
    found = behind_pooling(folder_of(backbone))
    if found.pools and found.pooling is None:
        raise InputError(
            f"backbone={backbone}: its way of pooling is none of ours. Choose one, model.pooling=NAME: "
            f"{', '.join(POOLERS)}."
        )
    return found.pooling or "mean"


def prompts_to_inherit(backbone: str) -> EncoderPrompts:
    """The prompts of the folder of a backbone, for its training texts; none for a plain transformer.

    Raises:
        InputError: its pooling leaves the tokens of prompts out, which training cannot do.
    """
    name = folder_of(backbone)
    prompts = read_prompts(name, "backbone")
    if prompts and behind_pooling(name).leaves_prompt_out:
        raise InputError(
            key="backbone",
            value=backbone,
            expected="an encoder that pools the tokens of its prompts, too (include_prompt of its pooling is false)",
            hint="Set data.prompts={} to train without prompts.",
        )
    return prompts


def kept_behind(backbone: str, pooling: str) -> Behind:
    """The Dense layers and whether there is a Normalize.

    Layers belong to the pooling that they were trained behind: with another one they are left out, which is logged.
    The backbone's own tanh layer (``pooling=pooler_output``) is read elsewhere.

    Raises:
        InputError: another module stands there.
    """
    found = behind_pooling(folder_of(backbone))
    if found.beyond:
        raise InputError(
            f"backbone={backbone}: behind its pooling is {found.beyond}, and training keeps Dense layers with an "
            "activation of torch.nn and a Normalize at the end. To train without it, take it out of modules.json in a "
            "copy of the folder."
        )
    if not found.layers or found.pooling == pooling:
        return found
    if pooling in POOLERS and not POOLERS[pooling].is_shipped:
        log.warning(
            "backbone=%s: its layer behind the pooling was trained with pooling=%s, and is left out with "
            "model.pooling=%s.",
            *(backbone, found.pooling, pooling),
        )
    return found._replace(layers=())
