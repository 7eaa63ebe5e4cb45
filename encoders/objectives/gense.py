"""GenSE: a prompted T5 whose first decoder state is the vector of a text (Chen et al., EMNLP 2022).

That is the state from which an answer's first word is written; a causal language model has it at the last token of the
prompt behind the text. Each anchor must find its positive among the positives and hard negatives of the whole batch.
Data of two columns has no hard negatives. The same data trains a T5's encoder alone (ST5) and any BERT-like backbone:
``pooling`` decides.
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

AUTO = "auto"  # of model.prompt


class GenSE(HardNegativesObjective):
    """``truncation="official"`` lets long texts push the prompt out of training batches, as the published code did;
    `embed` keeps it always. The weights of hard negatives are those of `losses.contrastive.info_nce`.
    """

    objective = "gense"
    consumes = TripletBatch
    default_pooling = "first_decoder"
    tiny_backbone = "t5"

    settings: GenSEConfig

    def __init__(self, settings: GenSEConfig) -> None:
        own = own_encoder(settings.backbone, settings.pooling)
        pooling = state_of_an_answer(settings.pooling or own.pooling(self.default_pooling), settings.backbone)
        super().__init__(replace(settings, pooling=pooling, prompt=prompt_of(settings)))

    def make_encoder(self, trainable: TrainableEncoder) -> SentenceEncoder:
        """With the prompt behind every text."""
        return trainable.load(prompt=self.settings.prompt or "")

    def on_before_batch_transfer(self, batch: TripletBatch, dataloader_idx: int) -> TripletBatch:
        """Texts end where their prompt begins; on the host, as the device would have to be asked for their ids."""
        if self.encoder.appended is None:
            return super().on_before_batch_transfer(batch, dataloader_idx)
        end = self.encoder.appended.without_last_blanks
        negatives = None if batch.negatives is None else end(batch.negatives)
        batch = batch._replace(anchors=end(batch.anchors), positives=end(batch.positives), negatives=negatives)
        return super().on_before_batch_transfer(batch, dataloader_idx)

    def texts(self, batch: TripletBatch) -> list[Ragged]:
        return self.with_negatives([batch.anchors, batch.positives], batch.negatives)

    def views(self, batch: TripletBatch) -> list[Ragged]:
        """Anchors, positives, and the hard negatives where there are any, with the prompt behind each text."""
        texts, appended = self.texts(batch), self.encoder.appended
        if appended is None:
            return texts
        keeps = self.settings.truncation == "keep_prompt"
        return [appended(text, keep_prompt=keeps, max_length=batch.max_length) for text in texts]


def prompt_of(settings: GenSEConfig) -> str | None:
    """Return the prompt behind every text: ``model.prompt``, else that of the backbone if it is an encoder already."""
    if settings.prompt != AUTO:
        return settings.prompt
    own = own_encoder(settings.backbone, settings.pooling).exported
    return own.prompt_suffix if own else settings.default_prompt


def state_of_an_answer(pooling: str, backbone: str) -> str:
    """The pooling that reads what ``first_decoder`` names in a backbone without an encoder; others are kept."""
    if not pooler_of(pooling, "model.pooling").decodes or not is_decoder_alone(from_pretrained(AutoConfig, backbone)):
        return pooling
    log.info("model.pooling=%s of a causal language model is the state of the last token: pooling=last", pooling)
    return "last"
