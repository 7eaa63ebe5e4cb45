"""What every objective shares: the encoder it trains, the optimiser, and what a step reports.

A new objective is a subclass with ``objective``, ``consumes`` and a ``training_step``; its constructor names the keys
of its config, among them those read here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypedDict, cast

import pytorch_lightning as pl
from torch import Tensor, nn
from transformers import PreTrainedModel

from contracts import InputError, Ragged, StepOutput
from encoders.attention import check_first_token
from encoders.backbones import BEHIND, OF_ITS_HEAD, check_vocabulary, load_masked_lm, load_tokenizer
from encoders.behind_pooling import folder_of, kept_behind, pooling_of
from encoders.compiled import compile_layers
from encoders.dense import dense_layers
from encoders.exported import read_head
from encoders.guide import GuideEncoder, kept_on_host
from encoders.layers import check_decay, decayed_rates, freeze
from encoders.lengths import length_to_train
from encoders.lora import RECORD, Below, LoraKeys, adapt, below, check_digest, left_out, record_of, wanted
from encoders.optim import ScheduleName, adafactor, adamw, make_schedule, planned_steps
from encoders.pooling import POOLERS
from encoders.prefixes import Prefix, over_prefixes, prefixes
from encoders.sentence_encoder import Encoded, SentenceEncoder
from encoders.shipped_pooler import shipped_pooler
from encoders.unpadded import set_attn_implementation
from losses.contrastive import Contrast, Guide
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
    layer_decay: float | None  # rate of a layer over that of the one above it
    freeze: str | None  # embeddings, layers:N
    lora: LoraKeys
    frozen_weights: Literal["fp32", "bf16"]
    compile: bool | str  # the layers, by torch's compiler, or by another backend of it


class EncoderSettings(Settings):
    """Those of an objective that trains vectors."""

    pooling: str | None  # as the backbone has it
    normalize: bool | None  # vectors of length 1 wherever they leave the encoder; null: as the backbone's folder says
    append_end: bool | None
    attention: str | None  # causal, bidirectional
    dropout: float | None  # of the backbone in training; null: as its config says
    attn_implementation: str  # auto, unpadded, or one of transformers
    max_length: int | None  # tokens that `embed` reads, special tokens included; null: what the backbone can, up to 512


class VectorSettings(EncoderSettings):
    """Those of an objective that compares vectors."""

    matryoshka: Sequence[int] | None  # sizes of prefixes that the loss is summed over
    matryoshka_weights: Sequence[float] | None  # null: 1 each


class ContrastSettings(VectorSettings):
    """Those of one whose negatives are the other texts of the batch."""

    guide: str | None  # an encoder that says which of them are none
    guide_absolute_margin: float | None  # of a cosine; null: 0
    guide_relative_margin: float | None  # share of the pair's cosine


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
    prefixes: Sequence[Prefix] = ()  # of the vectors that are trained, the longest first; none: they as they are
    guide: GuideEncoder | None = None
    settled: Mapping[str, str] = {}  # a key that was left to the backbone -> what it has become, and why
    gradient_norm: Tensor | None = None  # of the last step, before it was clipped
    hparams: Any  # Lightning's type knows no keys

    def make_encoder(
        self, *, lm_head: bool = False, head: nn.Module | None = None, adapts: bool = True
    ) -> SentenceEncoder:
        """The encoder; and what its vectors are trained by: prefixes of them, a guide. ``adapts`` is false where
        `adapt` is called later.

        Raises:
            InputError: the backbone or the guide cannot be loaded, or an option is unknown.
        """
        hparams, under = self.hparams, self.below()
        hparams.pooling = hparams.pooling or pooling_of(hparams.backbone)
        decoder = hparams.pooling in POOLERS and POOLERS[hparams.pooling].decodes
        if hparams.pooling in POOLERS and POOLERS[hparams.pooling].is_shipped and head is None:
            head = shipped_pooler(hparams.backbone)
        behind = kept_behind(hparams.backbone, hparams.pooling)
        attention = hparams.get("attention")
        transformer = load_masked_lm(
            hparams.backbone,
            weights=under.base,
            lm_head=lm_head,
            decoder=decoder,
            attention=attention,
            dropout=hparams.get("dropout"),
            attention_dropout=hparams.get("attention_dropout"),
        )
        check_first_token(transformer, hparams.pooling, hparams.backbone)
        tokenizer = load_tokenizer(hparams.backbone, ends=bool(hparams.get("append_end")))
        check_vocabulary(transformer, tokenizer, hparams.backbone)
        set_attn_implementation(transformer, hparams.attn_implementation, hparams.backbone)
        if adapts:
            self.adapt(transformer, under)
        if head is None and behind.layers:
            width = int(transformer.config.hidden_size)
            head = read_head(folder_of(hparams.backbone), behind.layers, width, setting="backbone")
        normalize = hparams.get("normalize")
        encoder = SentenceEncoder(
            transformer,
            tokenizer,
            pooling=hparams.pooling,
            head=head,
            max_length=length_to_train(hparams.max_length, transformer.config, tokenizer, hparams.backbone),
            token_budget=hparams.token_budget,
            recompute=hparams.recompute,
            attn_implementation=hparams.attn_implementation,
            prompt_suffix=hparams.get("prompt") or "",
            normalize=behind.normalize if normalize is None else normalize,
        )
        self.prefixes = prefixes(hparams.get("matryoshka"), hparams.get("matryoshka_weights"), encoder.width)
        self.guide = self._make_guide(tokenizer)
        encoder.beside = self.guide.modules if self.guide else ()
        return encoder.train()  # from_pretrained leaves dropout off, and Lightning trains in the mode it finds

    def _make_guide(self, tokenizer: Any) -> GuideEncoder | None:
        name, margins = self.hparams.get("guide"), ("guide_absolute_margin", "guide_relative_margin")
        for key in margins:
            if name is None and self.hparams.get(key) is not None:
                raise InputError(
                    f"model.{key}={self.hparams[key]}: there is no guide to hold it. Set model.guide, too."
                )
        return None if name is None else GuideEncoder(name, tokenizer)

    @property
    def sizes(self) -> list[int]:
        """Of prefixes that are vectors in their own right, beside the whole ones."""
        return [one.size for one in self.prefixes if one.size < self.encoder.width]

    def over_prefixes(self, loss: Callable[..., Any], *views: Tensor) -> tuple[Any, dict[str, Tensor]]:
        """The loss of (B, D) views, summed over their prefixes where there are any; and that of each prefix."""
        return over_prefixes(loss, self.prefixes, *views)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """A guide reads texts, and keeps their ids on the host: the device would have to be asked for them."""
        return batch if self.guide is None else type(batch)(*map(kept_on_host, batch))

    def guided(self, several: Sequence[Ragged]) -> Guide | None:
        """What the guide makes of these texts, before any mask or prompt; None where there is no guide."""
        if self.guide is None:
            return None
        hparams = self.hparams
        margins = hparams.guide_absolute_margin or 0.0, hparams.guide_relative_margin or 0.0
        return Guide(self.guide(several), *margins)

    def below(self) -> Below:
        """What is loaded: the backbone, or what lies below the adapters that it has and this run keeps."""
        return below(self.hparams.backbone, self.hparams.get("lora"))

    def adapt(self, transformer: PreTrainedModel, under: Below, *beside: nn.Module) -> None:
        """Where ``model.lora.rank`` asks for it, freeze what was loaded and put an adapter into it; then what
        ``model.freeze`` names, and have compiled what ``model.compile`` asks for; in place.

        What lies ``beside`` shares weights with it.
        """
        lora, frozen_weights = self.hparams.get("lora"), self.hparams.get("frozen_weights")
        if wanted(lora, frozen_weights):
            adapt(transformer, lora, under, frozen_weights, *beside)
        freeze(transformer, self.hparams.get("freeze"), self.hparams.backbone)
        check_decay(transformer, self.hparams.get("layer_decay"))
        compile_layers(self.hparams.get("compile", False), transformer, *beside)

    @property
    def transformer(self) -> PreTrainedModel:
        """The backbone, wherever the objective has it."""
        return self.encoder.transformer

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
        if not any(weight.requires_grad for weight in self.parameters()):
            raise InputError(f"freeze={hparams.freeze}: nothing is left to train. Freeze fewer layers.")
        rates = decayed_rates(self.transformer, hparams.lr, hparams.get("layer_decay")) | self.own_rates()
        if (optimizer := hparams.get("optimizer", "adamw")) != "adamw":
            return adafactor(
                self,
                lr=hparams.lr,
                weight_decay=hparams.weight_decay,
                schedule=schedule,
                scaled=optimizer == "adafactor_scaled",
                rates=rates,
            )
        return adamw(
            self,
            lr=hparams.lr,
            weight_decay=hparams.weight_decay,
            betas=(hparams.betas[0], hparams.betas[1]),
            eps=hparams.eps,
            bias_correction=hparams.bias_correction,
            schedule=schedule,
            rates=rates,
        )

    def check_batch(self, batch: Any) -> None:
        """Raises InputError where the settings want what a batch of this data does not have; computes nothing."""

    def negatives(self, batch: Any, processes: int) -> int:
        """Texts that an anchor of such a batch, of one of so many processes, is told from; 0 where nothing is."""
        return 0

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Lightning's hook: what it does by itself, and the norm is kept."""
        if gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            self.clip(optimizer, gradient_clip_val)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip(self, optimizer: Any, most: float) -> None:
        """Scale the gradients, in place, so that their norm is at most ``most``; what it was stays in
        ``gradient_norm``, on the device.
        """
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        self.gradient_norm = nn.utils.clip_grad_norm_(weights, most)

    def own_rates(self) -> dict[nn.Parameter, float]:
        """Weights behind the backbone that are trained at another rate than ``lr``."""
        return {}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["objective"] = self.objective
        if "max_length" in self.hparams:
            checkpoint["max_length"] = self.encoder.max_length
            layers = [layer.options for layer in dense_layers(self.encoder.head)]
            checkpoint[BEHIND] = {"normalize": self.encoder.normalize, "layers": layers}
        if (record := record_of(self)) is not None:
            checkpoint[RECORD] = record
            for name in left_out(self):
                if not name.startswith(OF_ITS_HEAD):  # it is read from there, also where it stands still
                    del checkpoint["state_dict"][name]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Weights that a checkpoint of an adapter leaves out are the backbone's, and here already."""
        if RECORD in checkpoint and (frozen := left_out(self)):
            check_digest(self, checkpoint[RECORD], "resume")
            own = self.state_dict()
            checkpoint["state_dict"] |= {name: own[name] for name in frozen}

    def diagnostics(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        """Of the pairs of all ranks, at steps that are logged: it takes an eigendecomposition."""
        if (self.global_step + 1) % self.hparams.log_every_n_steps:
            return {}
        return contrast_diagnostics(gather_rows(left.detach())[0], gather_rows(right.detach())[0])


def contrasted(found: Contrast, each: dict[str, Tensor], guide: Guide | None) -> dict[str, Tensor]:
    """The metrics of a contrastive loss: of its prefixes, and of its guide."""
    return {"accuracy": found.accuracy, **each, **({"left_out": found.left_out} if guide else {})}


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


def other_texts(views: Sequence[Ragged], processes: int) -> int:
    """The negatives of an anchor, the first view, among the texts of the others: all but its own positive."""
    return processes * sum(len(view.lengths) for view in views[1:]) - 1


def check_choice(key: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"model.{key}={value!r} is unknown; choose {' or '.join(choices)}.")


def check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise InputError(f"model.temperature={temperature} must be above 0; the papers use 0.05.")
