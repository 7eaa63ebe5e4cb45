"""DeCLUTR: contrastive loss on spans of documents, plus masked language modeling (Giorgi et al., ACL 2021).

Shape letters: N documents, A anchors per document, P positives per anchor, D width; AN stands for A * N rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import IGNORED_LABEL, InputError, Ragged, SpanBatch
from contrastive_encoders.encoders.attention import is_decoder_alone
from contrastive_encoders.encoders.contrastive import ContrastiveObjective
from contrastive_encoders.encoders.kernels.chunks import concatenate, on_device
from contrastive_encoders.encoders.loading.backbones import NoMaskedLMHeadError
from contrastive_encoders.encoders.loading.trainable import TrainableEncoder
from contrastive_encoders.encoders.objective import StepResult
from contrastive_encoders.encoders.objectives.declutr_config import DeCLUTRConfig
from contrastive_encoders.encoders.sentence_encoder import SentenceEncoder
from contrastive_encoders.io.model_names import mask_id
from contrastive_encoders.losses.contrastive import Guide, nt_xent
from contrastive_encoders.losses.duplicate_masking import count_negatives_of_views
from contrastive_encoders.losses.gather import global_mean
from contrastive_encoders.losses.metric_learning import metric_loss


class DeCLUTR(ContrastiveObjective):
    """Objective of DeCLUTR, with the loss contrastive_weight x NT-Xent(anchors, averaged positives) + mlm_weight x
    MLM(anchors).

    Settings:

    - ``mask_anchors_for_contrast``: the contrastive loss uses the masked anchors, so that one forward pass serves both
      losses, as published. If False, the unmasked anchors are encoded as well.
    - ``ddp_gradient="per_rank"``: the published gradient of the contrastive loss on several processes, which is the
      exact gradient divided by the number of processes.
    - ``metric_loss``, ``metric_miner``: classes of pytorch-metric-learning that replace NT-Xent.
    - ``mlm_weight``: null is 1 if the backbone predicts masked tokens, and otherwise 0, which ``resolved_settings``
      reports. For a causal language model with bidirectional attention, MLM is MNTP: a masked token is predicted at the
      previous position.
    - ``mask_token``: token that replaces masked tokens.
    """

    objective = "declutr"
    consumes = SpanBatch
    remedy = "Add documents with other texts."

    settings: DeCLUTRConfig

    def __init__(self, settings: DeCLUTRConfig) -> None:
        if settings.contrastive_weight == 0 and settings.mlm_weight == 0:
            expected = "more than 0, because model.mlm_weight is 0"
            raise InputError(key="model.contrastive_weight", value=0, expected=expected)
        _check_metric_loss(settings.metric_loss, settings.metric_miner, settings.guide, settings.contrastive_weight)
        super().__init__(settings)
        if settings.contrastive_weight == 0 and self.encoder.head is not None:
            self.encoder.head.requires_grad_(False)  # no loss uses it; DDP waits for each gradient
        if self.mlm_weight > 0 and mask_id(self.encoder.tokenizer, settings.mask_token) is None:
            raise InputError(
                key="model.mlm_weight",
                value=self.mlm_weight,
                expected=f"0, because the tokenizer of {settings.backbone} has no mask token",
                hint="To train with MLM, set model.mask_token to one of the tokenizer's tokens.",
            )
        self._predicts_next = self.mlm_weight > 0 and is_decoder_alone(self.encoder.transformer.config)
        self._metric_loss = _named_metric_loss(
            settings.metric_loss, settings.metric_miner, settings.metric_options or {}
        )

    def make_encoder(self, trainable: TrainableEncoder) -> SentenceEncoder:
        """Load the encoder, with its masked-LM head if ``mlm_weight`` is above 0, or if it is None and the backbone has
        such a head.

        Raises:
            InputError: If ``contrastive_weight`` is 0 and MLM is not possible, so that no loss is left.
        """
        if (weight := self.settings.mlm_weight) is not None:
            self.mlm_weight = float(weight)
            return trainable.load(lm_head=weight > 0)
        try:
            encoder = trainable.load(lm_head=True)
        except NoMaskedLMHeadError as error:
            if self.settings.contrastive_weight == 0:
                raise
            self.resolved_settings = {
                "model.mlm_weight": f"0, as backbone={self.settings.backbone} {error.reason}: no MLM, the contrastive "
                "loss alone"
            }
            encoder, self.mlm_weight = trainable.load(), 0.0
        else:
            self.mlm_weight = 1.0
        return encoder

    def texts(self, batch: SpanBatch) -> list[Ragged]:
        return [batch.anchors, batch.positives]

    def views(self, batch: SpanBatch) -> list[Ragged]:
        """Return the sequences to encode: anchors and positives for the contrastive loss, and masked anchors for MLM.

        The anchors of the contrastive loss are the masked ones if ``mask_anchors_for_contrast`` is set.
        """
        masked = Ragged(batch.masked_ids, batch.anchors.lengths)
        if self.mlm_weight == 0:
            return [batch.anchors, batch.positives]
        if self.settings.contrastive_weight == 0:
            return [masked]
        if self.settings.mask_anchors_for_contrast:
            return [masked, batch.positives]
        return [batch.anchors, batch.positives, masked]

    def compute(self, views: Sequence[Ragged], batch: SpanBatch) -> StepResult:
        """Compute the contrastive loss and the MLM loss in one forward pass."""
        if self._predicts_next:
            batch = shift_labels(batch)
        sequences = concatenate(views)
        encoded = self.encoder.encode_sequences(sequences, *self._labels(views, batch))
        loss, metrics = encoded.vectors.new_zeros(()), {}
        if self.mlm_weight > 0:
            mlm = global_mean(encoded.mlm_sum, (batch.labels != IGNORED_LABEL).sum())
            loss, metrics["mlm"] = loss + self.mlm_weight * mlm, mlm.detach()
        if self.settings.contrastive_weight > 0:
            anchors_AND, positives_APND = encoded.vectors.split([len(view.lengths) for view in views])[:2]
            contrast = self.compute_loss([anchors_AND, average_positives(positives_APND, len(anchors_AND))], batch)
            loss = loss + self.settings.contrastive_weight * contrast.loss
            metrics |= contrast.metrics | {"contrastive": contrast.loss.detach()}
        return StepResult(loss, metrics, int(sequences.lengths.sum()), encoded.padding_tokens)

    def loss(
        self,
        vectors: Sequence[Tensor],
        batch: SpanBatch,
        guide: Guide | None = None,
        text_hashes: Sequence[Tensor] | None = None,
    ) -> Any:
        """Return the contrastive loss of the anchors and their averaged positives."""
        anchors_AND, positives_AND = vectors
        if self._metric_loss is not None:
            return self._metric_loss(anchors_AND, positives_AND)
        if guide is not None:
            guide = guide._replace(views=[guide.views[0], average_positives(guide.views[1], len(anchors_AND))])
        if text_hashes is not None:
            text_hashes = [text_hashes[0], summed_hashes(text_hashes[1], len(anchors_AND))]
        return nt_xent(
            anchors_AND,
            positives_AND,
            temperature=self.settings.temperature,
            reduction=self.settings.reduction,
            scale=self.settings.ddp_gradient,
            guide=guide,
            text_hashes=text_hashes,
        )

    def count_negatives(self, batch: SpanBatch) -> Tensor | None:
        if self.settings.contrastive_weight == 0 or self._metric_loss is not None:
            return None
        anchors, positives = self.view_hashes(batch)
        exclude_equal = self.settings.exclude_equal_texts
        return count_negatives_of_views(anchors, summed_hashes(positives, len(anchors)), exclude_equal=exclude_equal)

    def can_learn(self, batch: SpanBatch, num_negatives: Tensor | None) -> bool:
        predicts = self.mlm_weight > 0 and bool((batch.labels != IGNORED_LABEL).any())
        return predicts or (self.settings.contrastive_weight > 0 and super().can_learn(batch, num_negatives))

    def _labels(self, views: Sequence[Ragged], batch: SpanBatch) -> tuple[Tensor | None, np.ndarray | None]:
        """Return the MLM labels of all token ids of the views, and the indices of the labels that are not ignored."""
        if self.mlm_weight == 0:
            return None, None
        masked = len(views) - 1 if len(views) == 3 else 0
        labels = [
            batch.labels if at == masked else torch.full_like(view.ids, IGNORED_LABEL) for at, view in enumerate(views)
        ]
        before = sum(len(view.ids) for view in views[:masked])
        return torch.cat(labels), None if batch.predicted is None else batch.predicted + before


def summed_hashes(hashes: Tensor, num_anchors: int) -> Tensor:
    """Sum the hashes of the P positives of each anchor, which are consecutive: (A * N * P,) -> (A * N,) for A anchors
    in each of N documents.
    """
    return hashes.unflatten(0, (num_anchors, -1)).sum(1)


def average_positives(positives: Tensor, num_anchors: int) -> Tensor:
    """Average the embeddings of the P positives of each anchor, which are consecutive: (A * N * P, D) -> (A * N, D) for
    A anchors in each of N documents.
    """
    return positives.unflatten(0, (num_anchors, -1)).mean(1)


def shift_labels(batch: SpanBatch) -> SpanBatch:
    """Shift each label to the position before its token, which is where a causal language model predicts the token.

    The first token of a sequence is not predicted (MNTP of LLM2Vec, BehnamGhader et al. 2024).
    """
    ends = np.cumsum(batch.anchors.lengths)
    last = on_device(ends - 1, batch.labels.device)
    predicted = None if batch.predicted is None else np.setdiff1d(batch.predicted, ends - batch.anchors.lengths) - 1
    return batch._replace(labels=batch.labels.roll(-1).index_fill(0, last, IGNORED_LABEL), predicted=predicted)


def _check_metric_loss(
    metric_loss: str | None, miner: str | None, guide: str | None, contrastive_weight: float
) -> None:
    if guide and (metric_loss or contrastive_weight == 0):
        effect = f"metric_loss={metric_loss} replaces" if metric_loss else "contrastive_weight=0 disables"
        raise InputError(
            key="model.guide",
            value=guide,
            expected=f"null, because a guide filters the negatives of NT-Xent, which model.{effect}",
            hint="Set model.guide=null.",
        )
    if miner and not metric_loss:
        raise InputError(key="model.metric_miner", value=miner, expected="null if model.metric_loss is not set")


def _named_metric_loss(name: str | None, miner: str | None, options: dict[str, Any]) -> Any:
    if name is None:
        return None
    try:
        return metric_loss(name, miner, **options)
    except (ValueError, TypeError) as error:
        raise InputError(f"model.metric_loss={name}: {error}", key="model.metric_loss", value=name) from error
