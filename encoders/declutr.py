"""DeCLUTR: spans of one document are pulled together, and their masked tokens predicted (Giorgi et al., ACL 2021).

Shape letters: N documents, A anchors per document, P positives per anchor, D width; AN stands for A * N rows.
"""

import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from contracts import IGNORED_LABEL, InputError, Ragged, SpanBatch, StepOutput
from encoders.backbones import check_vocabulary, load_masked_lm, load_tokenizer
from encoders.chunks import concatenate
from encoders.optim import adamw, make_schedule, planned_steps
from encoders.sentence_encoder import SentenceEncoder
from losses.contrastive import Contrast, nt_xent
from losses.diagnostics import contrast_diagnostics
from losses.gather import gather_rows, global_mean
from losses.metric_learning import metric_loss


class DeCLUTR(pl.LightningModule):
    """Loss = contrastive_weight x NT-Xent of anchors and their averaged positives + mlm_weight x MLM of anchors.

    ``mask_anchors_for_contrast``: the masked anchor is also the contrastive one, so one forward serves both losses, as
    published; false encodes the unmasked anchor besides. ``loss_scale="paper"`` is the published gradient of the
    contrastive loss on several processes, 1 / processes of the exact one. ``metric_loss`` and ``metric_miner`` name
    classes of pytorch-metric-learning that take NT-Xent's place.
    """

    objective = "declutr"
    consumes = SpanBatch
    tiny_backbone = "masked_lm"

    def __init__(
        self,
        backbone: str,
        pooling: str = "mean",
        max_length: int = 512,
        temperature: float = 0.05,
        contrastive_weight: float = 1.0,
        mlm_weight: float = 1.0,
        mask_anchors_for_contrast: bool = True,
        reduction: str = "mean",
        loss_scale: str = "exact",
        metric_loss: str | None = None,
        metric_miner: str | None = None,
        metric_options: dict[str, Any] | None = None,
        lr: float = 5e-5,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
        lr_schedule: str = "slanted_triangular",
        cut_fraction: float = 0.1,
        schedule_ratio: float = 32.0,
        token_budget: int | None = None,
        recompute: str = "auto",
        log_every_n_steps: int = 50,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)  # train.py gives the loggers the whole config
        _check(self.hparams)
        transformer, tokenizer = load_masked_lm(backbone, lm_head=mlm_weight > 0), load_tokenizer(backbone)
        check_vocabulary(transformer, tokenizer, backbone)
        self.encoder = SentenceEncoder(
            transformer,
            tokenizer,
            pooling=pooling,
            max_length=max_length,
            token_budget=token_budget,
            recompute=recompute,
        )
        self._metric_loss = _named_metric_loss(metric_loss, metric_miner, metric_options or {})

    def training_step(self, batch: SpanBatch, batch_idx: int) -> StepOutput:
        sequences, labels = self._sequences(batch)
        encoded = self.encoder.encode(sequences, labels)
        loss, metrics = encoded.vectors.new_zeros(()), {}
        if self.hparams.mlm_weight > 0:
            mlm = global_mean(encoded.mlm_sum, (batch.labels != IGNORED_LABEL).sum())
            loss, metrics["mlm"] = loss + self.hparams.mlm_weight * mlm, mlm.detach()
        if self.hparams.contrastive_weight > 0:
            contrast, described = self._contrast(encoded.vectors, batch)
            loss = loss + self.hparams.contrastive_weight * contrast
            metrics |= described
        spent = {
            "examples": len(batch.documents),
            "real_tokens": int(sequences.lengths.sum()),
            "padded_tokens": encoded.padded_tokens,
        }
        return {"loss": loss, "metrics": metrics, "spent": spent}

    def configure_optimizers(self) -> dict[str, Any]:
        hparams, trainer = self.hparams, self.trainer
        # Not trainer.estimated_stepping_batches: under max_epochs it sets the loader up before its state is restored,
        # and a continued run would begin its epoch anew.
        steps_per_epoch = len(trainer.datamodule.train_dataloader())
        total_steps = planned_steps(trainer.max_steps, trainer.max_epochs, steps_per_epoch)
        schedule = make_schedule(
            hparams.lr_schedule,
            total_steps=total_steps,
            steps_per_epoch=steps_per_epoch,
            epochs=math.ceil(total_steps / steps_per_epoch),
            instances=trainer.datamodule.num_examples,
            cut_fraction=hparams.cut_fraction,
            ratio=hparams.schedule_ratio,
        )
        betas = (hparams.betas[0], hparams.betas[1])
        return adamw(
            self.encoder,
            lr=hparams.lr,
            weight_decay=hparams.weight_decay,
            betas=betas,
            eps=hparams.eps,
            bias_correction=hparams.bias_correction,
            schedule=schedule,
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["objective"] = self.objective

    def _sequences(self, batch: SpanBatch) -> tuple[Ragged, Tensor | None]:
        """All that this step encodes, the contrastive anchors first, then the positives, then what only MLM needs."""
        masked = Ragged(batch.masked_ids, batch.anchors.lengths)
        if self.hparams.mlm_weight == 0:
            return concatenate([batch.anchors, batch.positives]), None
        if self.hparams.contrastive_weight == 0:
            return masked, batch.labels
        if self.hparams.mask_anchors_for_contrast:
            parts, labels = [masked, batch.positives], [batch.labels, _unlabelled(batch.positives)]
        else:
            parts = [batch.anchors, batch.positives, masked]
            labels = [_unlabelled(batch.anchors), _unlabelled(batch.positives), batch.labels]
        return concatenate(parts), torch.cat(labels)

    def _contrast(self, vectors: Tensor, batch: SpanBatch) -> tuple[Tensor, dict[str, Tensor]]:
        num_anchors, num_positives = len(batch.anchors.lengths), len(batch.positives.lengths)
        anchors_AND = vectors[:num_anchors]
        positives_AND = vectors[num_anchors : num_anchors + num_positives].unflatten(0, (num_anchors, -1)).mean(1)
        described: dict[str, Tensor] = {}
        if self._metric_loss is not None:
            loss = self._metric_loss(anchors_AND, positives_AND)
        else:
            contrast: Contrast = nt_xent(
                anchors_AND,
                positives_AND,
                temperature=self.hparams.temperature,
                reduction=self.hparams.reduction,
                scale=self.hparams.loss_scale,
            )
            loss, described["accuracy"] = contrast.loss, contrast.accuracy
        described["contrastive"] = loss.detach()
        if (self.global_step + 1) % self.hparams.log_every_n_steps == 0:  # an eigendecomposition: not at every step
            left, _ = gather_rows(anchors_AND.detach())
            right, _ = gather_rows(positives_AND.detach())
            described |= contrast_diagnostics(left, right)
        return loss, described


def _unlabelled(sequences: Ragged) -> Tensor:
    return torch.full_like(sequences.ids, IGNORED_LABEL)


def _check(hparams: Any) -> None:
    if hparams.temperature <= 0:
        raise InputError(f"model.temperature={hparams.temperature} must be above 0; the paper uses 0.05.")
    weights = (hparams.contrastive_weight, hparams.mlm_weight)
    if min(weights) < 0 or max(weights) == 0:
        raise InputError(
            f"model.contrastive_weight={weights[0]} and model.mlm_weight={weights[1]}: neither may be negative, and "
            "one must be above 0, or there is nothing to learn."
        )
    for key, choices in (("reduction", ("mean", "sum")), ("loss_scale", ("exact", "paper"))):
        if hparams[key] not in choices:
            raise InputError(f"model.{key}={hparams[key]!r} is unknown; choose {' or '.join(choices)}.")
    if hparams.metric_miner and not hparams.metric_loss:
        raise InputError(f"model.metric_miner={hparams.metric_miner} needs a model.metric_loss to mine for.")


def _named_metric_loss(name: str | None, miner: str | None, options: dict[str, Any]) -> Any:
    if name is None:
        return None
    try:
        return metric_loss(name, miner, **options)
    except (ValueError, TypeError) as error:
        raise InputError(f"model.metric_loss={name}: {error}") from error
