"""GenSE: a prompted T5 whose first decoder state is the embedding of a text (Chen et al., EMNLP 2022).

This is the hidden state that predicts the first token of an answer. In a causal language model, it is the hidden state
of the last token of the prompt, which follows the text. Each anchor must find its positive among the positives and hard
negatives of the entire batch. Data with two columns has no hard negatives. Depending on ``pooling``, the same data can
also train only the encoder of a T5 (ST5), or any BERT-like backbone.
"""

import logging
from dataclasses import replace

from transformers import AutoConfig

from contrastive_encoders.core import Ragged, TripletBatch
from contrastive_encoders.encoders.attention import is_decoder_alone
from contrastive_encoders.encoders.contrastive import HardNegativesObjective
from contrastive_encoders.encoders.loading.backbones import from_pretrained
from contrastive_encoders.encoders.loading.own_encoder import own_encoder
from contrastive_encoders.encoders.loading.trainable import TrainableEncoder
from contrastive_encoders.encoders.objectives.gense_config import GenSEConfig
from contrastive_encoders.encoders.pooling import pooler_of
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder

log = logging.getLogger(__name__)

AUTO = "auto"  # value of model.prompt_suffix


class GenSE(HardNegativesObjective):
    """Contrastive objective for encoders that append a prompt to each text.

    With ``truncation="official"``, the prompt of long texts is truncated in training, as in the published code; `embed`
    always keeps it. The weights of hard negatives are explained in `losses.contrastive.info_nce`.
    """

    objective = "gense"
    consumes = TripletBatch
    default_pooling = "first_decoder"
    tiny_backbone = "t5"

    settings: GenSEConfig

    def __init__(self, settings: GenSEConfig) -> None:
        own = own_encoder(settings.backbone, settings.pooling)
        pooling = resolve_pooling(settings.pooling or own.pooling(self.default_pooling), settings.backbone)
        super().__init__(replace(settings, pooling=pooling, prompt_suffix=prompt_of(settings)))

    def make_encoder(self, trainable: TrainableEncoder) -> SentenceEncoder:
        """Load the encoder, which appends the prompt to every text."""
        return trainable.load(prompt=self.settings.prompt_suffix or "")

    def on_before_batch_transfer(self, batch: TripletBatch, dataloader_idx: int) -> TripletBatch:
        """Remove trailing spaces of texts before a prompt is appended; this happens on the host, so that no
        synchronization is needed.
        """
        if self.encoder.appended is None:
            return super().on_before_batch_transfer(batch, dataloader_idx)
        end = self.encoder.appended.strip_trailing_spaces
        negatives = None if batch.negatives is None else end(batch.negatives)
        batch = batch._replace(anchors=end(batch.anchors), positives=end(batch.positives), negatives=negatives)
        return super().on_before_batch_transfer(batch, dataloader_idx)

    def texts(self, batch: TripletBatch) -> list[Ragged]:
        return self.with_negatives([batch.anchors, batch.positives], batch.negatives)

    def views(self, batch: TripletBatch) -> list[Ragged]:
        """Return the anchors, the positives, and the hard negatives if the batch has any, each followed by the
        prompt.
        """
        texts, appended = self.texts(batch), self.encoder.appended
        if appended is None:
            return texts
        keeps = self.settings.truncation == "keep_prompt"
        return [appended(text, keep_prompt=keeps, max_length=batch.max_length) for text in texts]


def prompt_of(settings: GenSEConfig) -> str | None:
    """Return the prompt that is appended to every text.

    It is ``model.prompt_suffix``. If that is "auto", it is the prompt of the backbone if the backbone is an encoder,
    and otherwise the default prompt.
    """
    if settings.prompt_suffix != AUTO:
        return settings.prompt_suffix
    own = own_encoder(settings.backbone, settings.pooling).exported
    return own.prompt_suffix if own else settings.default_prompt


def resolve_pooling(pooling: str, backbone: str) -> str:
    """Return "last" for ``first_decoder`` if the backbone is a causal language model, otherwise ``pooling``
    unchanged.
    """
    if not pooler_of(pooling, "model.pooling").decodes or not is_decoder_alone(from_pretrained(AutoConfig, backbone)):
        return pooling
    log.info("model.pooling=%s: for a causal language model, this means the last token's state (pooling=last)", pooling)
    return "last"
