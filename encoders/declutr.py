"""DeCLUTR: spans of one document are pulled together, and their masked tokens predicted (Giorgi et al., ACL 2021).

Shape letters: N documents, A anchors per document, P positives per anchor, D width; AN stands for A * N rows.
"""

from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from contracts import IGNORED_LABEL, InputError, Ragged, SpanBatch, StepOutput
from encoders.attention import is_decoder_alone
from encoders.backbones import NoMaskedLM
from encoders.chunks import concatenate, on_device
from encoders.objective import ContrastSettings, Objective, check_choice, check_temperature, contrasted, step_output
from encoders.sentence_encoder import SentenceEncoder
from files.models import mask_id
from losses.contrastive import nt_xent
from losses.gather import global_mean
from losses.metric_learning import metric_loss


class DeCLUTR(Objective):
    """Loss = contrastive_weight x NT-Xent of anchors and their averaged positives + mlm_weight x MLM of anchors.

    ``mask_anchors_for_contrast``: the masked anchor is also the contrastive one, so one forward serves both losses, as
    published; false encodes the unmasked anchor besides. ``loss_scale="paper"`` is the published gradient of the
    contrastive loss on several processes, 1 / processes of the exact one. ``metric_loss`` and ``metric_miner`` name
    classes of pytorch-metric-learning that take NT-Xent's place.

    ``mlm_weight`` null is 1 where the backbone predicts masked tokens, and 0 where it does not: ``settled`` then
    says so. Of a causal language model that reads both ways MLM is MNTP: a masked token is predicted at the place
    before it. ``mask_token`` is what the data masks with.
    """

    objective = "declutr"
    consumes = SpanBatch

    def __init__(
        self,
        *,
        temperature: float,
        contrastive_weight: float,
        mlm_weight: float | None,
        mask_anchors_for_contrast: bool,
        mask_token: str | None,
        reduction: str,
        loss_scale: str,
        metric_loss: str | None,
        metric_miner: str | None,
        metric_options: dict[str, Any] | None,
        schedule_ratio: float,
        log_every_n_steps: int,
        **settings: Unpack[ContrastSettings],
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)  # train.py gives the loggers the whole config
        _check(self.hparams)
        if mlm_weight is None:
            self.encoder, self.hparams.mlm_weight = self._with_head_if_there(settings["backbone"])
        else:
            self.encoder = self.make_encoder(lm_head=mlm_weight > 0)
        mlm_weight = float(self.hparams.mlm_weight)
        if contrastive_weight == 0 and self.encoder.head is not None:
            self.encoder.head.requires_grad_(False)  # no loss reads a vector; DDP waits for each gradient
        if mlm_weight > 0 and mask_id(self.encoder.tokenizer, mask_token) is None:
            raise InputError(
                f"model.mlm_weight={mlm_weight:g}: the tokenizer of backbone={settings['backbone']} has no mask token, "
                "so nothing can be masked. Name one of its tokens as model.mask_token, take a masked language model, "
                "or set model.mlm_weight=0."
            )
        self._predicts_next = mlm_weight > 0 and is_decoder_alone(self.encoder.transformer.config)
        self._metric_loss = _named_metric_loss(metric_loss, metric_miner, metric_options or {})

    def _with_head_if_there(self, backbone: str) -> tuple[SentenceEncoder, float]:
        """The encoder, and the weight of MLM.

        Raises:
            InputError: no loss is left.
        """
        try:
            return self.make_encoder(lm_head=True), 1.0
        except NoMaskedLM as error:
            if self.hparams.contrastive_weight == 0:
                raise
            self.settled = {
                "model.mlm_weight": f"0, as backbone={backbone} {error.why}: no MLM, the contrastive loss alone"
            }
            return self.make_encoder(lm_head=False), 0.0

    def training_step(self, batch: SpanBatch, batch_idx: int) -> StepOutput:
        if self._predicts_next:
            batch = one_before(batch)
        sequences, labels, predicted = self._sequences(batch)
        encoded = self.encoder.encode(sequences, labels, predicted)
        loss, metrics = encoded.vectors.new_zeros(()), {}
        if self.hparams.mlm_weight > 0:
            mlm = global_mean(encoded.mlm_sum, (batch.labels != IGNORED_LABEL).sum())
            loss, metrics["mlm"] = loss + self.hparams.mlm_weight * mlm, mlm.detach()
        if self.hparams.contrastive_weight > 0:
            contrast, described = self._contrast(encoded.vectors, batch)
            loss = loss + self.hparams.contrastive_weight * contrast
            metrics |= described
        return step_output(loss, metrics, examples=len(batch.documents), sequences=sequences, encoded=encoded)

    def negatives(self, batch: SpanBatch, processes: int) -> int:
        return 2 * processes * len(batch.anchors.lengths) - 2 if self.hparams.contrastive_weight > 0 else 0

    def _sequences(self, batch: SpanBatch) -> tuple[Ragged, Tensor | None, np.ndarray | None]:
        """All that this step encodes, the contrastive anchors first, then the positives, then what only MLM needs; the
        labels beside it, and the places of those that count.
        """
        masked, predicted = Ragged(batch.masked_ids, batch.anchors.lengths), batch.predicted
        if self.hparams.mlm_weight == 0:
            return concatenate([batch.anchors, batch.positives]), None, None
        if self.hparams.contrastive_weight == 0:
            return masked, batch.labels, predicted
        if self.hparams.mask_anchors_for_contrast:
            parts, labels = [masked, batch.positives], [batch.labels, _unlabelled(batch.positives)]
        else:
            parts = [batch.anchors, batch.positives, masked]
            labels = [_unlabelled(batch.anchors), _unlabelled(batch.positives), batch.labels]
            predicted = None if predicted is None else predicted + len(batch.anchors.ids) + len(batch.positives.ids)
        return concatenate(parts), torch.cat(labels), predicted

    def _contrast(self, vectors: Tensor, batch: SpanBatch) -> tuple[Tensor, dict[str, Tensor]]:
        num_anchors, num_positives = len(batch.anchors.lengths), len(batch.positives.lengths)
        anchors_AND = vectors[:num_anchors]
        positives_AND = averaged(vectors[num_anchors : num_anchors + num_positives], num_anchors)
        if self._metric_loss is not None:
            alone, described = self.over_prefixes(self._by_metric_loss, anchors_AND, positives_AND)
            loss = alone.loss
        else:
            guide = self.guided([batch.anchors, batch.positives])
            if guide is not None:
                guide = guide._replace(views=[guide.views[0], averaged(guide.views[1], num_anchors)])
            nt_xent_of = partial(
                nt_xent,
                temperature=self.hparams.temperature,
                reduction=self.hparams.reduction,
                scale=self.hparams.loss_scale,
                guide=guide,
            )
            contrast, each = self.over_prefixes(nt_xent_of, anchors_AND, positives_AND)
            loss, described = contrast.loss, contrasted(contrast, each, guide)
        described["contrastive"] = loss.detach()
        described |= self.diagnostics(anchors_AND, positives_AND)
        return loss, described

    def _by_metric_loss(self, anchors: Tensor, positives: Tensor) -> "Alone":
        return Alone(self._metric_loss(anchors, positives))


class Alone(NamedTuple):
    """A loss of which there is no more to say."""

    loss: Tensor


def averaged(positives: Tensor, num_anchors: int) -> Tensor:
    """(A * N * P, D), grouped by anchor -> (A * N, D)."""
    return positives.unflatten(0, (num_anchors, -1)).mean(1)


def one_before(batch: SpanBatch) -> SpanBatch:
    """The same with each label at the place before its token, where a causal language model predicts it.

    What is first in its sequence is not predicted (MNTP of LLM2Vec, BehnamGhader et al. 2024).
    """
    ends = np.cumsum(batch.anchors.lengths)
    last = on_device(ends - 1, batch.labels.device)
    predicted = None if batch.predicted is None else np.setdiff1d(batch.predicted, ends - batch.anchors.lengths) - 1
    return batch._replace(labels=batch.labels.roll(-1).index_fill(0, last, IGNORED_LABEL), predicted=predicted)


def _unlabelled(sequences: Ragged) -> Tensor:
    return torch.full_like(sequences.ids, IGNORED_LABEL)


def _check(hparams: Any) -> None:
    check_temperature(hparams.temperature)
    weights = (hparams.contrastive_weight, 1.0 if hparams.mlm_weight is None else hparams.mlm_weight)
    if min(weights) < 0 or max(weights) == 0:
        raise InputError(
            f"model.contrastive_weight={weights[0]} and model.mlm_weight={weights[1]}: neither may be negative, and "
            "one must be above 0, or there is nothing to learn."
        )
    check_choice("reduction", hparams.reduction, ("mean", "sum"))
    check_choice("loss_scale", hparams.loss_scale, ("exact", "paper"))
    if hparams.guide and (hparams.metric_loss or hparams.contrastive_weight == 0):
        why = f"metric_loss={hparams.metric_loss} takes" if hparams.metric_loss else "contrastive_weight=0 leaves out"
        raise InputError(
            f"model.guide={hparams.guide} chooses the negatives of NT-Xent, whose place model.{why}. Set "
            "model.guide=null."
        )
    if hparams.metric_miner and not hparams.metric_loss:
        raise InputError(f"model.metric_miner={hparams.metric_miner} needs a model.metric_loss to mine for.")


def _named_metric_loss(name: str | None, miner: str | None, options: dict[str, Any]) -> Any:
    if name is None:
        return None
    try:
        return metric_loss(name, miner, **options)
    except (ValueError, TypeError) as error:
        raise InputError(f"model.metric_loss={name}: {error}") from error
