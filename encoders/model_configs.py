"""Configuration keys of models, ``model.KEY`` on a command line. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal, TypedDict, cast

from contrastive_encoders.core.config_schema import config_field, new_default
from contrastive_encoders.encoders.pooling import POOLERS

T5Optimizer = Literal["adafactor", "adafactor_scaled", "adamw"]
ScheduleName = Literal[
    "slanted_triangular",
    "paper_literal",
    "official_code_bug",
    "linear",
    "linear_from_zero",
    "linear_constant",
    "constant",
]


@dataclass(frozen=True, kw_only=True)
class TinySizes:
    """Architecture of ``backbone=tiny``, a small encoder with random weights."""

    vocab_size: int = config_field(12_288, "size of the vocabulary", ge=1)
    hidden_size: int = config_field(256, "width of the hidden states", ge=1)
    layers: int = config_field(2, "number of layers of the encoder (and of the decoder, if there is one)", ge=1)
    heads: int = config_field(4, "number of attention heads", ge=1)
    intermediate_size: int = config_field(1024, "width of the feed-forward layers", ge=1)
    max_length: int = config_field(512, "maximum length of a text in tokens, special tokens included", ge=1)
    dropout: float = config_field(0.1, "dropout probability of attention and hidden states", ge=0, le=1)
    lowercase: bool = config_field(True, "whether the tokenizer lowercases texts")


class LoraKeys(TypedDict):
    """Configuration keys of an adapter, under ``model.lora``."""

    rank: int | None
    alpha: float | None
    dropout: float
    targets: str | Sequence[str]
    stages: Literal["merge", "stack"]
    seed: int


@dataclass(frozen=True, kw_only=True)
class LoRAConfig:
    """Configuration of LoRA (Hu et al. 2021): low-rank matrices are trained and the backbone is frozen.

    Needs the extra ``lora``.

    Example:
        >>> from contrastive_encoders import LoRAConfig, PairsConfig
        >>> PairsConfig(lora=LoRAConfig(rank=16)).lora.targets
        'auto'
    """

    rank: int | None = config_field(
        None, "rank of the LoRA matrices, usually 16; null: no LoRA, all weights are trained", ge=1
    )
    alpha: float | None = config_field(
        None, "scale of LoRA updates, which are multiplied by alpha / rank; null: twice the rank", gt=0
    )
    dropout: float = config_field(0.0, "dropout on the input of the LoRA matrices", ge=0, lt=1)
    targets: str | Sequence[str] = config_field(
        "auto", "layers to adapt: names, e.g. [q_proj,v_proj]; auto: all linear layers except a language-model head"
    )
    stages: Literal["merge", "stack"] = config_field(
        "merge",
        "treatment of the previous stage's adapter: merge: merge it into the weights; stack: keep it, frozen, "
        "below the new one",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial LoRA weights")

    @property
    def keys(self) -> LoraKeys:
        """Keys as a checkpoint records them."""
        return cast(LoraKeys, asdict(self))


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Configuration keys of the backbone: its name, the trained weights, their precision, and the tokens of a chunk."""

    backbone: str = config_field(
        inherits_from="backbone", meaning="hub id, directory of a model, or directory of a run"
    )
    freeze: str | None = config_field(
        inherits_from="freeze", meaning="embeddings: freeze the embeddings; layers:N: also the N lowest layers"
    )
    lora: LoRAConfig = field(
        default_factory=LoRAConfig,
        metadata={"meaning": "needs the extra lora: pip install 'contrastive-encoders[lora]'"},
    )
    frozen_dtype: Literal["fp32", "bf16", "nf4"] = config_field(
        "fp32",
        "precision of the frozen weights if lora.rank is set; bf16: half the memory; nf4: an eighth during "
        "training (needs the extra quantization: pip install 'contrastive-encoders[quantization]')",
    )
    compile: bool | str = config_field(
        False,
        "whether to use torch.compile, which takes a minute or more at the start; or the name of another "
        "backend, such as aot_eager",
    )
    token_budget: int | None = config_field(
        inherits_from="token_budget", meaning="maximum number of tokens per forward pass, padding included", ge=1
    )
    activation_checkpointing: Literal["auto", "on", "off", "layers"] = config_field(
        "auto",
        "recomputation of activations in the backward pass; auto: if a batch exceeds token_budget; layers: also "
        "layer by layer, for long texts",
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Configuration keys of the optimizer and its learning-rate schedule."""

    optimizer: T5Optimizer = config_field(
        "adamw", "name of the optimizer; adafactor_scaled: as in T5's pretraining, for random weights with lr=0.02"
    )
    lr: float = config_field(3.0e-5, "peak learning rate", ge=0)
    weight_decay: float = config_field(0.0, "decoupled weight decay", ge=0)
    betas: Sequence[float] = config_field(
        (0.9, 0.999), "AdamW's betas (adamw only, like eps and bias_correction)", ge=0, lt=1
    )
    eps: float = config_field(1.0e-8, "term added to the denominator of AdamW for numerical stability", ge=0)
    bias_correction: bool = config_field(True, "whether AdamW corrects bias; false: as in older published runs")
    lr_schedule: ScheduleName = config_field(
        "linear",
        "name of the schedule; linear_from_zero: as in transformers, with learning rate 0 at the first step",
    )
    warmup_ratio: float = config_field(
        0.0,
        "fraction of the steps used for warmup; for linear_constant, the fraction with a constant learning "
        "rate before the decay",
        ge=0,
        le=1,
    )
    schedule_ratio: float = config_field(
        32.0, "ratio of the highest to the lowest learning rate with slanted_triangular"
    )
    layer_decay: float | None = config_field(
        None,
        "ratio of each layer's learning rate to that of the layer above, such as 0.9; embeddings have the "
        "lowest; null: the same for all layers",
        gt=0,
        le=1,
    )


@dataclass(frozen=True, kw_only=True)
class TrainableConfig(BackboneConfig, OptimizerConfig):
    """Configuration keys that all trained models share."""

    summary: ClassVar[str] = ""  # what the objective does, for model cards

    target: str = ""  # class that is built from this config


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TrainableConfig):
    """Configuration keys of an objective that trains an encoder."""

    pooling: str | None = config_field(
        None,
        f"pooling of the hidden states: {', '.join(POOLERS)}; null: the pooling of the backbone, or for a plain "
        "transformer cls (simcse, tsdae), "
        "first_decoder (gense), or mean (all others)",
    )
    normalize: bool | None = config_field(
        None,
        "whether to L2-normalize embeddings in evaluation and exports, so that dot product and cosine rank "
        "alike; null: as the backbone does",
    )
    keep_layers: int | Sequence[int] | None = config_field(
        None,
        "layers of the backbone to keep, counted from 0, e.g. [0,2,3,5]; a number: that many, evenly spaced "
        "from the first to the last; null: all",
    )
    append_eos: bool | None = config_field(
        None, "whether to append the end-of-sequence token to every text, for pooling=last with a decoder"
    )
    attention: str | None = config_field(
        None, "attention of causal language models: causal or bidirectional; null: as in the model's config"
    )
    dropout: float | None = config_field(
        None,
        "dropout probability of the backbone during training (attention, hidden states, and embeddings); null: "
        "as in the model's config",
        ge=0,
        lt=1,
    )
    attention_dropout: float | None = config_field(
        None,
        "dropout probability of attention only, e.g. 0.3 for a decoder (LLM2Vec); null: the same as dropout",
        ge=0,
        lt=1,
    )
    max_length: int | None = config_field(
        None,
        "maximum length in tokens for evaluation and export; null: that of the backbone, or for a plain "
        "transformer what it allows, up to 512",
        ge=1,
    )
    attn_implementation: str = config_field(
        "auto",
        "auto: sequences are packed without padding if the model supports it; unpadded: the same, or an "
        "error; sdpa, eager, flash_attention_2, ...: padded, as in transformers",
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(EncoderConfig):
    """Configuration keys of objectives whose loss compares embeddings."""

    matryoshka: Sequence[int] | None = config_field(
        None,
        "Matryoshka sizes, e.g. [768,256,64]: the loss is summed over the first 768, 256, and 64 dimensions "
        "of the embeddings",
    )
    matryoshka_weights: Sequence[float] | None = config_field(
        None, "weight of each Matryoshka size, e.g. [1,1,0.5]; null: 1"
    )


TEACHER = "an encoder (directory, hub id, or run) whose embeddings, computed once before training, are learned"
DISTANCE = "distance to minimize: cosine: 1 - cosine similarity to the teacher's embeddings; mse: mean squared error"


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig(EmbeddingConfig):
    """Configuration keys of objectives with in-batch negatives."""

    temperature: float = config_field(0.05, "temperature of the softmax, by which cosines are divided", gt=0)
    exclude_equal_texts: bool = config_field(
        True, "whether equal texts of the global batch are excluded as negatives; false: as in the papers"
    )
    guide: str | None = config_field(
        None,
        "an encoder (directory, hub id, or run) that filters false negatives: candidates that it finds more "
        "similar to a text than the positive are left out",
    )
    guide_absolute_margin: float | None = config_field(
        None, "margin subtracted from the positive's cosine before the guide compares candidates; null: 0", ge=0, le=2
    )
    guide_relative_margin: float | None = config_field(
        None, "margin as a fraction of the positive's cosine, such as 0.05; null: 0", ge=0, le=1
    )
    teacher: str | None = config_field(None, f"{TEACHER}, in addition to the contrastive loss")
    teacher_weight: float | None = config_field(
        None, "weight of the distance to the teacher's embeddings in the loss; null: 1", gt=0
    )
    distance: Literal["cosine", "mse"] | None = config_field(None, f"{DISTANCE}; null: cosine")
    log_every_n_steps: int = config_field(
        inherits_from="log_every_n_steps", meaning="steps between two log entries of diagnostics", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class HardNegativesConfig(ContrastiveConfig):
    """Configuration keys of an objective whose anchors may have hard negatives of their own."""

    hard_negative_weight: float = config_field(
        0.0, "value added to the logits of an anchor's own hard negatives: with w, each counts e^w times"
    )
    hardness_strength: float = config_field(
        0.0,
        "weight by hardness (EmbeddingGemma uses 5): with s, an anchor's own hard negative counts e^(s * cosine) times",
        ge=0,
    )


@dataclass(frozen=True, kw_only=True)
class SentencePairConfig(EmbeddingConfig):
    """Configuration keys of an objective that learns from labeled pairs, optimized as in SBERT's published runs."""

    lr: float = new_default(OptimizerConfig, "lr", 2.0e-5)
    weight_decay: float = new_default(OptimizerConfig, "weight_decay", 0.01)
    eps: float = new_default(OptimizerConfig, "eps", 1.0e-6)
    bias_correction: bool = new_default(OptimizerConfig, "bias_correction", False)
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)
