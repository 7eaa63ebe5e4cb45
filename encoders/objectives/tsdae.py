"""TSDAE (Wang, Reimers and Gurevych, Findings of EMNLP 2021): a denoising autoencoder.

Most tokens of a text are deleted, and a decoder reconstructs the original text from the embedding of the damaged one.
The decoder shares the encoder's weights, uses causal attention, and has separate cross-attention weights that read the
embedding. It is discarded after training.

Shape letters: N texts, D width, B texts of a chunk, T tokens of its longest text, M tokens to predict.
"""

import logging
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from contrastive_encoders.core import InputError, Ragged, SentenceBatch
from contrastive_encoders.encoders.attention import set_dropout
from contrastive_encoders.encoders.kernels.activation_checkpointing import recomputed_layers
from contrastive_encoders.encoders.kernels.chunks import (
    computed,
    on_device,
    padded,
    total_tokens,
)
from contrastive_encoders.encoders.kernels.compiled_layers import fast_layers
from contrastive_encoders.encoders.kernels.host_layout import TokenIndices, places_in_chunks
from contrastive_encoders.encoders.kernels.onednn_layers import attention_for
from contrastive_encoders.encoders.kernels.selective_lm_head import head_sees
from contrastive_encoders.encoders.layers import keep_layers
from contrastive_encoders.encoders.loading.backbones import from_pretrained
from contrastive_encoders.encoders.loading.trainable import TrainableEncoder
from contrastive_encoders.encoders.objective import Objective, StepResult
from contrastive_encoders.encoders.objectives.tsdae_config import TSDAEConfig
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.losses.cross_entropy import masked_lm_sum
from contrastive_encoders.losses.gather import global_mean

CROSS_ATTENTION = "BERT, RoBERTa, XLM-RoBERTa or ELECTRA"  # families that have it, for messages

log = logging.getLogger(__name__)


class TSDAE(Objective):
    """Objective that trains an encoder on damaged texts, together with a decoder that reconstructs the original texts.

    The loss is the mean of -log p(token | previous tokens, embedding) over all tokens of the original texts except the
    first. ``seed`` initializes the cross-attention, whose weights no checkpoint contains.
    """

    objective = "tsdae"
    consumes = SentenceBatch
    default_pooling = "cls"

    settings: TSDAEConfig

    def __init__(self, settings: TSDAEConfig) -> None:
        super().__init__(settings)
        if self.encoder.width != (read := int(self.encoder.transformer.config.hidden_size)):
            raise InputError(
                key="backbone",
                value=settings.backbone,
                expected=f"an encoder whose embedding dimension is the width of its transformer ({read}), but the "
                f"embedding dimension is {self.encoder.width}",
                hint="Choose another backbone, or change model.pooling: the layers after the pooling are dropped if "
                "the pooling differs from the one they were trained with.",
            )
        if not self.encoder.tokenizer.num_special_tokens_to_add():
            raise InputError(
                key="backbone",
                value=settings.backbone,
                expected="a tokenizer with a special token before each text, from which the decoder predicts the first "
                "token",
                hint=f"Choose {CROSS_ATTENTION}.",
            )
        base = self.trainable.adapter_base.base
        self.decoder = tied_decoder(
            settings.backbone,
            base,
            self.encoder.transformer,
            settings.seed,
            dropout=settings.dropout,
            layers=settings.keep_layers,
        ).train()
        self.encoder.activation_modules = (self.decoder,)
        self.trainable.prepare(self.encoder.transformer, self.decoder)

    def make_encoder(self, trainable: TrainableEncoder) -> SentenceEncoder:
        """Load the encoder without preparing it for training, because the constructor prepares it together with the
        decoder.
        """
        return trainable.load(prepared=False)

    def views(self, batch: SentenceBatch) -> list[Ragged]:
        if batch.damaged is None:
            raise InputError(
                key="data.deletion_ratio",
                value=None,
                expected="a fraction of the words to delete, because model=tsdae reconstructs texts from the rest",
                hint="The published value is data.deletion_ratio=0.6.",
            )
        return [batch.damaged]

    def compute(self, views: Sequence[Ragged], batch: SentenceBatch) -> StepResult:
        """Compute the reconstruction loss. The token counts include the tokens of the decoder."""
        encoded = self.encoder.encode_sequences(views[0])
        summed, padding = self._write(encoded.vectors, batch.sentences)
        loss = global_mean(summed, int((batch.sentences.lengths - 1).sum()))
        real_tokens = int(views[0].lengths.sum() + batch.sentences.lengths.sum())
        return StepResult(loss, {}, real_tokens, encoded.padding_tokens + padding)

    def _write(self, vectors_ND: Tensor, texts: Ragged) -> tuple[Tensor, int]:
        """Return the summed loss of reconstructing texts from their embeddings, and the number of padding tokens."""
        device, encoder = texts.ids.device, self.encoder
        chunks, again = encoder.training_chunks(texts.lengths, self.decoder, device)
        laid_out = padded(texts.ids, texts.lengths, chunks, cast(int, encoder.tokenizer.pad_token_id))
        behind_first = np.delete(np.arange(len(texts.ids)), np.cumsum(texts.lengths) - texts.lengths)
        wanted = places_in_chunks(behind_first, texts.lengths, chunks, device)
        sums = []
        for chunk, (ids_BT, _), places in zip(chunks, laid_out, wanted, strict=True):
            vectors_BD = vectors_ND[on_device(chunk.sequences, device)]
            sums.append(computed(self._write_chunk, vectors_BD, ids_BT, places, again=again))
        padding = total_tokens(chunks) - int(texts.lengths.sum())
        return torch.stack(sums).sum(), padding

    def _write_chunk(self, vectors_BD: Tensor, ids_BT: Tensor, wanted: TokenIndices) -> Tensor:
        """Return the summed loss of reconstructing the texts of a chunk.

        The function calls no collective operation, and only dropout is random. No attention mask is needed: padding
        follows the text, and causal attention does not see it.
        """
        before = wanted._replace(columns_M=wanted.columns_M - 1)
        layers = recomputed_layers(self.decoder, self.encoder.activation_checkpointing, lambda: attention_for(ids_BT))
        with attention_for(ids_BT), fast_layers(self.decoder), head_sees(self.decoder, before), layers:
            output = self.decoder(
                input_ids=ids_BT[:, :-1], encoder_hidden_states=vectors_BD.unsqueeze(1), use_cache=False
            )
        return masked_lm_sum(output.logits, wanted.of(ids_BT))


def tied_decoder(
    backbone: str,
    weights: str,
    encoder: PreTrainedModel,
    seed: int,
    *,
    dropout: float | None = None,
    layers: int | Sequence[int] | None = None,
) -> PreTrainedModel:
    """Load the backbone as a decoder with cross-attention, in float32, and share the encoder's weights with the
    decoder.

    Every parameter of ``encoder`` is replaced by the decoder's parameter of the same name. Weights that the checkpoint
    lacks are initialized from ``seed``: the cross-attention, and the language-model head if the backbone was saved
    without one.

    Args:
        backbone: Folder or hub id.
        weights: Name of the model to load the weights from: the backbone, or the base model of its adapters.
        encoder: Model whose parameters are replaced.
        seed: Seed of the initialization.
        dropout: Dropout probability; None keeps the one in the config.
        layers: Layers of the backbone that the encoder has kept; None: all.

    Raises:
        InputError: If the model family has no cross-attention.
    """
    config = from_pretrained(AutoConfig, backbone)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or config.is_encoder_decoder:
        raise _no_cross_attention(backbone, config.model_type)
    config.is_decoder = config.add_cross_attention = True
    set_dropout(config, dropout, None, backbone)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder, info = from_pretrained(
            AutoModelForCausalLM, weights, config=config, dtype=torch.float32, output_loading_info=True
        )
    keep_layers(decoder, layers, backbone)
    trunk = cast(nn.Module, decoder.base_model)
    own, shared = dict(trunk.named_parameters()), dict(encoder.named_parameters())
    if not shared.keys() < own.keys():
        raise _no_cross_attention(backbone, config.model_type)
    head = [key for key in info["missing_keys"] if not key.startswith(f"{decoder.base_model_prefix}.")]
    if head:
        log.info("backbone=%s was saved without its language-model head, which starts from random weights", weights)
    for key in shared:
        module, _, attribute = key.rpartition(".")
        setattr(encoder.get_submodule(module), attribute, own[key])
    return cast(PreTrainedModel, decoder)


def _no_cross_attention(backbone: str, kind: str) -> InputError:
    return InputError(
        key="backbone",
        value=backbone,
        expected=f"a model with cross-attention, such as {CROSS_ATTENTION}, but this is a {kind} model",
    )
