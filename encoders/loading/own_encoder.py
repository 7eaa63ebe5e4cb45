"""Settings that a backbone contains if it is already a sentence encoder. Training keeps them unless they are
overridden.
"""

import logging
from typing import NamedTuple

from contrastive_encoders.core import EncoderPrompts, InputError
from contrastive_encoders.encoders.dense import is_tanh_layer
from contrastive_encoders.encoders.loading.sentence_transformers_folder import (
    EncoderSettings,
    UnsupportedModelError,
    leaves_prompt_out,
    read_encoder_settings,
    read_json,
    read_prompts,
)
from contrastive_encoders.encoders.pooling import POOLERS, Pooler, pooler_of
from contrastive_encoders.io.installed_models import find_installed
from contrastive_encoders.io.model_names import GGUF, run_folder

log = logging.getLogger(__name__)


def prompts_to_inherit(backbone: str) -> EncoderPrompts:
    """Return the prompts of a backbone that are also used for the training texts. They are empty for a plain
    transformer.

    Raises:
        InputError: If its pooling excludes the tokens of prompts, which training does not support.
    """
    directory = directory_of(backbone)
    prompts = read_prompts(directory, "backbone")
    if prompts and leaves_prompt_out(directory, "backbone"):
        raise InputError(
            key="backbone",
            value=backbone,
            expected="an encoder whose pooling includes the tokens of its prompts, but include_prompt is false",
            hint="Set data.prompts={} to train without prompts.",
        )
    return prompts


class OwnEncoder(NamedTuple):
    """The settings of a backbone that is a sentence encoder; for a plain transformer, they are empty.

    Args:
        exported: Settings of the encoder; None: a plain transformer, or an encoder that training does not support.
        unsupported_reason: Reason why training does not support the encoder, or "". If there is one,
            ``model.pooling`` selects the transformer without the rest of the encoder.
    """

    exported: EncoderSettings | None
    unsupported_reason: str = ""

    def pooling(self, default: str) -> str:
        """Return the pooling of the sentence encoder, or ``default`` for a plain transformer."""
        return self.exported.pooler.name if self.exported else default


def directory_of(backbone: str) -> str:
    """Return the directory or hub id with the files of a backbone."""
    return run_folder(backbone) or find_installed(backbone) or backbone


def own_encoder(backbone: str, pooling: str | None = None) -> OwnEncoder:
    """Read the sentence encoder settings of a backbone.

    Args:
        backbone: Directory, run, or hub id.
        pooling: Value of ``model.pooling``, which can be set to train the transformer of an encoder without the rest.

    Raises:
        InputError: If a file is damaged, or if training does not support the encoder and no pooling is set.
    """
    directory = directory_of(backbone)
    if directory.endswith(GGUF):
        return OwnEncoder(None)
    try:
        exported = read_encoder_settings(directory, "", setting="backbone")
    except UnsupportedModelError as reason:
        if pooling is None:
            raise InputError(
                key="backbone",
                value=backbone,
                expected="a transformer with one pooling, optional Dense layers with an activation of torch.nn, and an "
                f"optional Normalize at the end, but {reason}",
                hint=f"Set model.pooling=mean, or another of {', '.join(POOLERS)}, to train only its transformer.",
            ) from reason
        log.warning("backbone=%s: %s. model.pooling=%s trains only its transformer.", backbone, reason, pooling)
        return OwnEncoder(None, str(reason))
    pooler = None if pooling is None else pooler_of(pooling, "model.pooling")
    if exported and pooler and pooler.is_shipped and has_tanh_layer(directory, exported):
        exported = exported._replace(pooler=pooler, layers=())  # the same encoder under another name
    return OwnEncoder(exported)


def has_tanh_layer(directory: str, exported: EncoderSettings) -> bool:
    """Return whether an encoder has CLS pooling followed by a single tanh layer, like BERT's pooler."""
    if exported.pooler != POOLERS["cls"] or len(exported.layers) != 1:
        return False
    return is_tanh_layer(read_json(directory, f"{exported.layers[0]}/config.json") or {})


def layers_to_keep(exported: EncoderSettings, pooler: Pooler, backbone: str) -> tuple[str, ...]:
    """Return the Dense layers of a backbone that are kept if the encoder uses the pooling ``pooler``. Log a warning if
    layers are dropped.
    """
    if exported.pooler == pooler or not exported.layers:
        return exported.layers
    log.warning(
        "backbone=%s: the layer after its pooling was trained with pooling=%s, and is dropped with model.pooling=%s.",
        *(backbone, exported.pooler.name, pooler.name),
    )
    return ()
