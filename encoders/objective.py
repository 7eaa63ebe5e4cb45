"""What every objective shares: the encoder it trains, the optimiser, and what a step reports.

A new objective is a subclass with ``objective``, ``consumes`` and a ``training_step``; its constructor names the keys
of its config, among them those read here.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypedDict, cast

import pytorch_lightning as pl
from torch import Tensor, nn
from transformers import PreTrainedModel

from contracts import InputError, Ragged, StepOutput
from encoders.attention import is_decoder_alone, reads_ahead
from encoders.backbones import check_vocabulary, load_masked_lm, load_tokenizer
from encoders.lengths import length_to_train
from encoders.optim import ScheduleName, adafactor, adamw, make_schedule, planned_steps
from encoders.pooling import POOLERS, cls
from encoders.sentence_encoder import Encoded, SentenceEncoder
from encoders.shipped_pooler import shipped_pooler
from losses.diagnostics import contrast_diagnostics
from losses.gather import gather_rows


class Settings(TypedDict):
    """Keys that every objective has under ``model``: what is trained, and how."""

    backbone: str
    token_budget: int | None  # padded tokens computed at once
    recompute: str
    lr: float
    weight_decay: float
    betas: Sequence[float]
    eps: float
    bias_correction: bool
    lr_schedule: ScheduleName
    cut_fraction: float  # of the steps: warm-up


class EncoderSettings(Settings):
    """Those of an objective that trains vectors."""

    pooling: str
    append_end: bool | None
    attention: str | None  # causal, bidirectional
    max_length: int | None  # tokens that `embed` reads, special tokens included; null: what the backbone can, up to 512


class Objective(pl.LightningModule):
    """``hparams`` holds all keys of the constructor: the settings above, and, where the objective has them,
    schedule_ratio (of a triangle), log_every_n_steps (of ``diagnostics``), optimizer (adamw, adafactor) and prompt
    (behind every text).
    """

    objective: ClassVar[str]
    consumes: ClassVar[type | tuple[type, ...]]
    tiny_backbone: ClassVar[str] = "masked_lm"
    product: ClassVar[str] = "encoder"  # what a run leaves, by the name of its folder; export/products.py writes it
    encoder: SentenceEncoder
    hparams: Any  # Lightning's type knows no keys

    def make_encoder(self, *, lm_head: bool = False, head: nn.Module | None = None) -> SentenceEncoder:
        """Raises InputError where the backbone cannot be loaded, or an option is unknown."""
        hparams = self.hparams
        decoder = hparams.pooling in POOLERS and POOLERS[hparams.pooling].decodes
        if hparams.pooling in POOLERS and POOLERS[hparams.pooling].is_shipped and head is None:
            head = shipped_pooler(hparams.backbone)
        attention = hparams.get("attention")
        transformer = load_masked_lm(
            hparams.backbone,
            lm_head=lm_head,
            decoder=decoder,
            attention=attention,
            attention_dropout=hparams.get("attention_dropout"),
        )
        check_first_token(transformer, hparams.pooling, hparams.backbone)
        tokenizer = load_tokenizer(hparams.backbone, ends=bool(hparams.get("append_end")))
        check_vocabulary(transformer, tokenizer, hparams.backbone)
        return SentenceEncoder(
            transformer,
            tokenizer,
            pooling=hparams.pooling,
            head=head,
            max_length=length_to_train(hparams.max_length, transformer.config, tokenizer, hparams.backbone),
            token_budget=hparams.token_budget,
            recompute=hparams.recompute,
            prompt_suffix=hparams.get("prompt") or "",
        ).train()  # from_pretrained leaves dropout off, and Lightning trains in the mode it finds

    def configure_optimizers(self) -> Any:
        hparams, trainer = self.hparams, cast(Any, self.trainer)  # a Trainer, with the data module it was given
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
            ratio=hparams.get("schedule_ratio", 32.0),
        )
        if (optimizer := hparams.get("optimizer", "adamw")) != "adamw":
            scaled = optimizer == "adafactor_scaled"
            return adafactor(self, lr=hparams.lr, weight_decay=hparams.weight_decay, schedule=schedule, scaled=scaled)
        return adamw(
            self,
            lr=hparams.lr,
            weight_decay=hparams.weight_decay,
            betas=(hparams.betas[0], hparams.betas[1]),
            eps=hparams.eps,
            bias_correction=hparams.bias_correction,
            schedule=schedule,
            rates=self.own_rates(),
        )

    def check_batch(self, batch: Any) -> None:
        """Raises InputError where the settings want what a batch of this data does not have; computes nothing."""

    def own_rates(self) -> dict[nn.Module, float]:
        """Parts that AdamW trains at another rate than ``lr``."""
        return {}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["objective"] = self.objective
        if "max_length" in self.hparams:
            checkpoint["max_length"] = self.encoder.max_length

    def diagnostics(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        """Of the pairs of all ranks, at steps that are logged: it takes an eigendecomposition."""
        if (self.global_step + 1) % self.hparams.log_every_n_steps:
            return {}
        return contrast_diagnostics(gather_rows(left.detach())[0], gather_rows(right.detach())[0])


def step_output(
    loss: Tensor, metrics: dict[str, Tensor], *, examples: int, sequences: Ragged, encoded: Encoded
) -> StepOutput:
    """``sequences`` are those that were encoded as ``encoded``."""
    spent = {
        "examples": examples,
        "real_tokens": int(sequences.lengths.sum()),
        "padded_tokens": encoded.padded_tokens,
    }
    return {"loss": loss, "metrics": metrics, "spent": spent}


def with_negatives(views: list[Ragged], negatives: Ragged | None, hard_negative_weight: float) -> list[Ragged]:
    """The views, and the hard negatives where there are any.

    Raises:
        InputError: there are none to give a weight to.
    """
    if negatives is None and hard_negative_weight:
        raise InputError(
            f"model.hard_negative_weight={hard_negative_weight}: this data has no hard negatives to weigh. Set it to "
            "0, or take data of three columns."
        )
    return views if negatives is None else [*views, negatives]


def check_first_token(transformer: PreTrainedModel, pooling: str, backbone: str) -> None:
    """InputError where the first token is pooled, and has seen nothing else."""
    reads_it = pooling in POOLERS and POOLERS[pooling].over_tokens is cls and not POOLERS[pooling].decodes
    if reads_it and is_decoder_alone(transformer.config) and not reads_ahead(transformer):
        raise InputError(
            f"model.pooling={pooling} reads the first token, and in backbone={backbone}, a causal language model, that "
            "one sees no other. Take model.pooling=last (with model.append_end=true), weighted_mean or mean, or "
            "model.attention=bidirectional."
        )


def check_choice(key: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"model.{key}={value!r} is unknown; choose {' or '.join(choices)}.")


def check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise InputError(f"model.temperature={temperature} must be above 0; the papers use 0.05.")
