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
    """Sizes of ``backbone=tiny``, a small encoder with random weights."""

    vocab_size: int = config_field(12_288, "size of the vocabulary", ge=1, le=1_000_000)
    hidden_size: int = config_field(256, "width of the hidden states", ge=1, le=8_192)
    layers: int = config_field(
        2, "number of layers of the encoder (and of the decoder, if there is one)", ge=1, le=1_024
    )
    heads: int = config_field(4, "number of attention heads", ge=1)
    intermediate_size: int = config_field(1024, "width of the feed-forward layers", ge=1, le=65_536)
    max_length: int = config_field(
        512, "maximum length of a text in tokens, including special tokens", ge=1, le=131_072
    )
    dropout: float = config_field(0.1, "dropout probability of attention and hidden states", ge=0, le=1)
    lowercase: bool = config_field(True, "whether the tokenizer lowercases texts")


class LoraKeys(TypedDict):
    """Configuration keys of a LoRA adapter, ``model.lora.KEY``."""

    rank: int | None
    alpha: float | None
    dropout: float
    targets: str | Sequence[str]
    stages: Literal["merge", "stack"]
    seed: int


@dataclass(frozen=True, kw_only=True)
class LoRAConfig:
    """Configuration of LoRA (Hu et al. 2021), which trains low-rank matrices and freezes the backbone.

    Requires the extra ``lora``.

    Example:
        >>> from contrastive_encoders import LoRAConfig, PairsConfig
        >>> PairsConfig(lora=LoRAConfig(rank=16)).lora.targets
        'auto'
    """

    rank: int | None = config_field(
        None, "rank of the LoRA matrices, usually 16; null: no LoRA, and all weights are trained", ge=1, le=8192
    )
    alpha: float | None = config_field(
        None, "numerator of the factor alpha / rank, by which the LoRA update is multiplied; null: twice the rank", gt=0
    )
    dropout: float = config_field(0.0, "dropout probability on the input of the LoRA matrices", ge=0, lt=1)
    targets: str | Sequence[str] = config_field(
        "auto",
        "names of the layers that get an adapter, e.g. [q_proj,v_proj]; auto: all linear layers except the "
        "language-model head",
    )
    stages: Literal["merge", "stack"] = config_field(
        "merge",
        "how the adapter of the previous stage is treated; merge: it is merged into the weights; stack: it is frozen, "
        "and the new adapter is added on top of it",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial LoRA weights")

    @property
    def keys(self) -> LoraKeys:
        """These configuration keys as a dictionary, which checkpoints store."""
        return cast(LoraKeys, asdict(self))


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Configuration keys of the backbone: its name, which weights are trained, their precision, and the number of
    tokens per chunk.
    """

    backbone: str = config_field(
        inherits_from="backbone",
        meaning="model to start training from: a hub id, the directory of a model, or the directory of a run",
    )
    freeze: str | None = config_field(
        inherits_from="freeze",
        meaning="weights of the backbone to freeze; embeddings: the embeddings; layers:N: the embeddings and the N "
        "lowest layers; null: no weights",
    )
    lora: LoRAConfig = field(
        default_factory=LoRAConfig,
        metadata={"meaning": "LoRA adapters, which require the extra lora: pip install 'contrastive-encoders[lora]'"},
    )
    frozen_dtype: Literal["fp32", "bf16", "nf4"] = config_field(
        "fp32",
        "precision of the frozen weights if lora.rank is set; bf16: half the memory of fp32; nf4: an eighth "
        "of the memory of fp32 during training (requires the extra quantization: pip install "
        "'contrastive-encoders[quantization]')",
    )
    compile: bool | str = config_field(
        False,
        "whether to compile the layers with torch.compile, which takes a minute or more at the start; true: with "
        "the backend inductor; a string, such as aot_eager: with the backend of this name",
    )
    token_budget: int | None = config_field(
        inherits_from="token_budget", meaning="maximum number of tokens per forward pass, including padding", ge=1
    )
    activation_checkpointing: Literal["auto", "on", "off", "layers"] = config_field(
        "auto",
        "whether activations are recomputed in the backward pass; auto: only if a batch exceeds token_budget; on: "
        "always; off: never; layers: like auto, but each layer is also recomputed separately, for long texts",
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Configuration keys of the optimizer and its learning-rate schedule."""

    optimizer: T5Optimizer = config_field(
        "adamw",
        "name of the optimizer; adafactor_scaled: Adafactor with the scaled updates of T5's pretraining, for "
        "backbones with random weights and lr=0.02",
    )
    lr: float = config_field(3.0e-5, "peak learning rate", ge=0)
    weight_decay: float = config_field(0.0, "decoupled weight decay", ge=0)
    betas: Sequence[float] = config_field(
        (0.9, 0.999),
        "the two betas of AdamW; betas, eps, and bias_correction apply only to optimizer=adamw",
        ge=0,
        lt=1,
    )
    eps: float = config_field(1.0e-8, "term added to the denominator of AdamW for numerical stability", ge=0)
    bias_correction: bool = config_field(
        True, "whether AdamW corrects the bias of its moments; false: no correction, as in older published runs"
    )
    lr_schedule: ScheduleName = config_field(
        "linear",
        "name of the learning-rate schedule; linear_from_zero: linear as in transformers, with learning rate "
        "0 at the first step",
    )
    warmup_ratio: float = config_field(
        0.0,
        "fraction of the training steps used for warmup; for lr_schedule=linear_constant, the fraction with a "
        "constant learning rate, which precedes the decay",
        ge=0,
        le=1,
    )
    schedule_ratio: float = config_field(
        32.0,
        "ratio of the highest to the lowest learning rate, for lr_schedule=slanted_triangular, paper_literal, and "
        "official_code_bug",
    )
    layer_decay: float | None = config_field(
        None,
        "ratio of each layer's learning rate to the learning rate of the next higher layer, such as 0.9; "
        "embeddings have the lowest learning rate; null: all layers have the same learning rate",
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
        f"pooling of the hidden states: {', '.join(POOLERS)}; null: the pooling of the backbone if it is a sentence "
        "encoder; for a plain transformer, cls (model=simcse, tsdae), first_decoder (model=gense), or mean (other "
        "models)",
    )
    normalize: bool | None = config_field(
        None,
        "whether to L2-normalize embeddings in evaluation and exports, so that dot product and cosine give the "
        "same ranking; null: they are normalized if the backbone is a sentence encoder that normalizes",
    )
    keep_layers: int | Sequence[int] | None = config_field(
        None,
        "layers of the backbone to keep: a list of 0-based indices, e.g. [0,2,3,5], or a number of layers, which "
        "are evenly spaced from the first to the last; null: all layers",
    )
    append_eos: bool | None = config_field(
        None,
        "whether to append the end-of-sequence token to every text, which pooling=last of a decoder needs; null: only "
        "if the backbone's tokenizer does so",
    )
    attention: str | None = config_field(
        None, "attention of a causal language model: causal or bidirectional; null: as in the model's config"
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
        "dropout probability of attention only, e.g. 0.3 for a decoder (LLM2Vec); null: same as dropout",
        ge=0,
        lt=1,
    )
    max_length: int | None = config_field(
        None,
        "maximum length of a text in tokens, in evaluation and export; null: the maximum length of the backbone if "
        "it is a sentence encoder; for a plain transformer, the limit of the transformer, but at most 512",
        ge=1,
    )
    attn_implementation: str = config_field(
        "auto",
        "implementation of attention in training; auto: sequences are packed without padding if the model supports "
        "packing, otherwise padded; unpadded: always packed, with an error if the model does not support packing; "
        "sdpa, eager, flash_attention_2, ...: padded, with this implementation of transformers",
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(EncoderConfig):
    """Configuration keys of objectives whose loss compares embeddings."""

    matryoshka: Sequence[int] | None = config_field(
        None,
        "Matryoshka sizes, e.g. [768,256,64], where the loss is the sum of the losses on the first 768, 256, and "
        "64 dimensions of the embeddings; null: the loss on the full embeddings",
    )
    matryoshka_weights: Sequence[float] | None = config_field(
        None, "weight of each Matryoshka size in the loss, e.g. [1,1,0.5]; null: 1 for each size"
    )


TEACHER = (
    "encoder (directory, hub id, or run) whose embeddings the model learns to reproduce; they are computed once before "
    "training"
)
DISTANCE = (
    "distance to the teacher's embeddings, which is minimized; cosine: 1 - cosine similarity; mse: mean squared error"
)


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig(EmbeddingConfig):
    """Configuration keys of objectives with in-batch negatives."""

    temperature: float = config_field(0.05, "temperature of the softmax; cosine similarities are divided by it", gt=0)
    exclude_equal_texts: bool = config_field(
        True,
        "whether equal texts in the global batch are excluded from each other's negatives; false: they are "
        "negatives of each other, as in the papers",
    )
    guide: str | None = config_field(
        None,
        "encoder (directory, hub id, or run) that filters false negatives: a candidate is not used as a negative "
        "if, according to the guide, it is more similar to a text than the text's positive is; null: no filter",
    )
    guide_absolute_margin: float | None = config_field(
        None,
        "margin of the guide: a candidate is excluded if the guide's cosine between text and candidate exceeds the "
        "cosine between text and positive minus this margin; null: 0",
        ge=0,
        le=2,
    )
    guide_relative_margin: float | None = config_field(
        None,
        "margin of the guide as a fraction of the cosine between text and positive, such as 0.05; if "
        "guide_absolute_margin is also set, the larger margin applies; null: 0",
        ge=0,
        le=1,
    )
    teacher: str | None = config_field(
        None, f"{TEACHER}, and the distance to them is added to the contrastive loss; null: no teacher"
    )
    teacher_weight: float | None = config_field(
        None, "weight of the distance to the teacher's embeddings in the loss; null: 1", gt=0
    )
    distance: Literal["cosine", "mse"] | None = config_field(None, f"{DISTANCE}; null: cosine")


@dataclass(frozen=True, kw_only=True)
class HardNegativesConfig(ContrastiveConfig):
    """Configuration keys of objectives that use hard negatives if the data contains them."""

    hard_negative_weight: float = config_field(
        0.0,
        "value w that is added to the logits of an anchor's hard negatives, so that each of them counts e^w times "
        "for this anchor",
    )
    hardness_strength: float = config_field(
        0.0,
        "strength s with which hard negatives are weighted by hardness: each counts e^(s * cosine) times for its "
        "anchor, where cosine is its similarity to the anchor; EmbeddingGemma uses 5",
        ge=0,
    )


@dataclass(frozen=True, kw_only=True)
class SentencePairConfig(EmbeddingConfig):
    """Configuration keys of objectives that learn from labeled pairs, with the optimizer settings of SBERT."""

    lr: float = new_default(OptimizerConfig, "lr", 2.0e-5)
    weight_decay: float = new_default(OptimizerConfig, "weight_decay", 0.01)
    eps: float = new_default(OptimizerConfig, "eps", 1.0e-6)
    bias_correction: bool = new_default(OptimizerConfig, "bias_correction", False)
    warmup_ratio: float = new_default(OptimizerConfig, "warmup_ratio", 0.1)
