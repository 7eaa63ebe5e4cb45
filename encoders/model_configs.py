"""Configuration keys of models, ``model.KEY`` on a command line. This module does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict, cast

from contrastive_encoders.core.config_schema import config_field, new_default

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
    layers: int = config_field(2, "layers of the encoder (and of the decoder, if there is one)", ge=1)
    heads: int = config_field(4, "attention heads", ge=1)
    intermediate_size: int = config_field(1024, "width of the feed-forward layers", ge=1)
    max_length: int = config_field(512, "maximum length of a text in tokens, special tokens included", ge=1)
    dropout: float = config_field(0.1, "dropout of attention and hidden states", ge=0, le=1)
    lowercase: bool = config_field(True, "true: the tokenizer lowercases texts")


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
    alpha: float | None = config_field(None, "LoRA updates are scaled by alpha / rank; null: twice the rank", ge=0)
    dropout: float = config_field(0.0, "dropout on the input of the LoRA matrices", ge=0, le=1)
    targets: str | Sequence[str] = config_field(
        "auto", "auto: all linear layers except a language-model head; or names of layers, e.g. [q_proj,v_proj]"
    )
    stages: Literal["merge", "stack"] = config_field(
        "merge",
        "merge: the adapter of the previous stage is merged into the weights; stack: it is kept, frozen, "
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
    frozen_weights: Literal["fp32", "bf16", "nf4"] = config_field(
        "fp32",
        "precision of the frozen weights if lora.rank is set; bf16: half the memory; nf4: an eighth during "
        "training (needs the extra bits: pip install 'contrastive-encoders[bits]')",
    )
    compile: bool | str = config_field(
        False,
        "true: train with torch.compile, which takes a minute or more at the start; or the name of another "
        "backend, such as aot_eager",
    )
    token_budget: int | None = config_field(
        inherits_from="token_budget", meaning="tokens per forward pass, padding included", ge=1
    )
    recompute: Literal["auto", "on", "off", "layers"] = config_field(
        "auto",
        "recompute activations in the backward pass; auto: if a batch exceeds token_budget; layers: also "
        "layer by layer, for long texts",
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Configuration keys of the optimizer and its learning-rate schedule."""

    optimizer: T5Optimizer = config_field(
        "adamw", "adafactor_scaled: as in T5's pretraining, for random weights with lr=0.02"
    )
    lr: float = config_field(3.0e-5, "peak learning rate", ge=0)
    weight_decay: float = config_field(0.0, "decoupled weight decay", ge=0)
    betas: Sequence[float] = config_field(
        (0.9, 0.999), "AdamW's betas (adamw only, like eps and bias_correction)", ge=0, lt=1
    )
    eps: float = config_field(1.0e-8, "term added to the denominator of AdamW for numerical stability", ge=0)
    bias_correction: bool = config_field(True, "false: AdamW without bias correction, as in older published runs")
    lr_schedule: ScheduleName = config_field(
        "linear", "linear_from_zero: as in transformers, where the learning rate of the first step is 0"
    )
    cut_fraction: float = config_field(
        0.0,
        "fraction of the steps used for warmup; for linear_constant, the fraction with a constant learning "
        "rate before the decay",
        ge=0,
        le=1,
    )
    schedule_ratio: float = config_field(32.0, "slanted_triangular: ratio of the highest to the lowest learning rate")
    layer_decay: float | None = config_field(
        None,
        "0.9: the learning rate of each layer is 0.9 times that of the layer above, and the lowest for the "
        "embeddings; null: the same for all layers",
    )


@dataclass(frozen=True, kw_only=True)
class TrainableConfig(BackboneConfig, OptimizerConfig):
    """Configuration keys that all trained models share."""

    target: str = ""  # class that is built from this config


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TrainableConfig):
    """Configuration keys of an objective that trains an encoder."""

    pooling: str | None = config_field(
        None,
        "mean, cls, last, weighted_mean, max, cls_before_pooler, pooler_output, avg_top2, avg_first_last, "
        "avg_embedding_last, first_decoder; null: the pooling of the backbone, or for a plain transformer cls "
        "(simcse, tsdae), first_decoder (gense), or mean (all others)",
    )
    normalize: bool | None = config_field(
        None,
        "true: scale embeddings to length 1 in evaluation and exports, so that dot product and cosine rank "
        "alike; false: don't; null: as the backbone does",
    )
    layers: int | Sequence[int] | None = config_field(
        None,
        "layers of the backbone to keep, counted from 0, e.g. [0,2,3,5]; a number: that many, evenly spaced "
        "from the first to the last; null: all",
    )
    append_end: bool | None = config_field(
        None, "true: append the end-of-sequence token to every text, for pooling=last with a decoder"
    )
    attention: str | None = config_field(
        None, "causal or bidirectional, for causal language models; null: as in the model's config"
    )
    dropout: float | None = config_field(
        None,
        "dropout of the backbone during training (attention, hidden states, and embeddings); null: as in the "
        "model's config",
    )
    attention_dropout: float | None = config_field(
        None, "attention dropout only, e.g. 0.3 for a decoder (LLM2Vec); null: the same as dropout"
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
DISTANCE = "cosine: 1 - cosine similarity to the teacher's embeddings; mse: mean squared error"


@dataclass(frozen=True, kw_only=True)
class DistilConfig(EmbeddingConfig):
    """Configuration of an encoder that learns the embeddings of a teacher.

    Example:
        >>> from contrastive_encoders import DistilConfig
        >>> DistilConfig(teacher="sentence-transformers/all-MiniLM-L6-v2").distance
        'cosine'
    """

    target: str = "contrastive_encoders.encoders.objectives.distil.Distil"

    lr: float = new_default(OptimizerConfig, "lr", 1.0e-4)
    cut_fraction: float = new_default(OptimizerConfig, "cut_fraction", 0.1)
    dropout: float | None = new_default(EncoderConfig, "dropout", 0.0)

    teacher: str = config_field(meaning=TEACHER)
    distance: Literal["cosine", "mse"] = config_field("cosine", DISTANCE)


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig(EmbeddingConfig):
    """Configuration keys of an objective whose negatives are the other texts of the batch."""

    temperature: float = config_field(0.05, "temperature: cosines are divided by it", gt=0)
    exclude_equal_texts: bool = config_field(
        True, "true: equal texts of the global batch are not negatives of each other; false: as in the papers"
    )
    guide: str | None = config_field(
        None,
        "an encoder (directory, hub id, or run) that filters false negatives: candidates that it finds more "
        "similar to a text than the positive are left out",
    )
    guide_absolute_margin: float | None = config_field(
        None, "subtracted from the positive's cosine before the guide compares candidates with it; null: 0", ge=0, le=2
    )
    guide_relative_margin: float | None = config_field(
        None, "the same, as a fraction of that cosine, such as 0.05", ge=0, le=1
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
        0.0, "added to the logits of an anchor's own hard negatives: with w, each counts e^w times"
    )
    hardness_strength: float = config_field(
        0.0,
        "weight by hardness (EmbeddingGemma uses 5): with s, an anchor's own hard negative counts e^(s * cosine) times",
        ge=0,
    )


@dataclass(frozen=True, kw_only=True)
class PairsConfig(HardNegativesConfig):
    """Configuration of contrastive training of pairs and triplets with in-batch negatives.

    Example:
        >>> from contrastive_encoders import PairsConfig
        >>> PairsConfig(directions=("query_document", "document_query")).partition
        'joint'
    """

    target: str = "contrastive_encoders.encoders.objectives.pairs.Pairs"

    directions: Sequence[str] = config_field(
        ("query_document",),
        "which similarities in the batch contribute candidates: query_document (required), document_query, "
        "query_query, document_document",
    )
    partition: str = config_field(
        "joint",
        "joint: one softmax over the candidates of all directions; per_direction: one softmax each for "
        "query_document and document_query (the symmetric loss)",
    )


@dataclass(frozen=True, kw_only=True)
class SimCSEConfig(HardNegativesConfig):
    """Configuration of SimCSE (Gao et al. 2021): two dropout masks, or pairs and triplets, with NT-Xent (eq. 1 and 5).

    Example:
        >>> from contrastive_encoders import SimCSEConfig
        >>> SimCSEConfig(lr=2e-5).temperature
        0.05
    """

    target: str = "contrastive_encoders.encoders.objectives.simcse.SimCSE"

    mlp: bool = config_field(True, "a linear layer and tanh between pooling and loss")
    mlp_only_train: bool | None = config_field(
        True,
        "true: the MLP is not part of the encoder; false: it is, as in supervised SimCSE (replaces a layer "
        "that the backbone has after its pooling); null: it is, unless the backbone is already a sentence "
        "encoder",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the MLP")


@dataclass(frozen=True, kw_only=True)
class GenSEConfig(HardNegativesConfig):
    """Configuration of GenSE's encoder (Chen et al. 2022): a prompted T5 that learns triplets in stages.

    Example:
        >>> from contrastive_encoders import GenSEConfig
        >>> GenSEConfig().optimizer
        'adafactor'
    """

    target: str = "contrastive_encoders.encoders.objectives.gense.GenSE"

    optimizer: T5Optimizer = new_default(OptimizerConfig, "optimizer", "adafactor")
    lr: float = new_default(OptimizerConfig, "lr", 5.0e-5)
    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "linear_constant")
    cut_fraction: float = new_default(OptimizerConfig, "cut_fraction", 0.1)

    prompt: str | None = config_field(
        "auto",
        "text appended to every input; null: none; auto: that of the backbone, or prompts.embedding for a "
        "plain transformer",
    )
    default_prompt: str | None = config_field(
        inherits_from="prompts.embedding", meaning="prompt of a plain transformer if prompt=auto"
    )
    truncation: Literal["keep_prompt", "official"] = config_field(
        "keep_prompt",
        "keep_prompt: long texts are truncated before the prompt; official: long texts cut the prompt off in "
        "training, as in the published code",
    )


@dataclass(frozen=True, kw_only=True)
class DeCLUTRConfig(ContrastiveConfig):
    """Configuration of DeCLUTR (Giorgi et al. 2021): NT-Xent on spans of documents plus masked language modeling.

    Example:
        >>> from contrastive_encoders import DeCLUTRConfig
        >>> config = DeCLUTRConfig(temperature=0.1)
        >>> config.lr, config.weight_decay
        (5e-05, 0.1)
    """

    target: str = "contrastive_encoders.encoders.objectives.declutr.DeCLUTR"

    lr: float = new_default(OptimizerConfig, "lr", 5.0e-5)
    weight_decay: float = new_default(OptimizerConfig, "weight_decay", 0.1)
    eps: float = new_default(OptimizerConfig, "eps", 1.0e-6)
    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "slanted_triangular")
    cut_fraction: float = new_default(OptimizerConfig, "cut_fraction", 0.1)

    contrastive_weight: float = config_field(1.0, "weight of the contrastive loss")
    mlm_weight: float | None = config_field(
        None, "weight of masked language modeling; null: 1 if the backbone predicts masked tokens, else 0"
    )
    mask_anchors_for_contrast: bool = config_field(
        True, "true: the masked anchors are contrasted, too; false: unmasked anchors are encoded in addition"
    )
    mask_token: str | None = config_field(
        None, 'a token of the vocabulary; null: the tokenizer\'s mask token, else "_"'
    )
    reduction: Literal["mean", "sum"] = config_field("mean", "sum: the equation of the paper")
    loss_scale: Literal["exact", "paper"] = config_field(
        "exact", "paper: the gradient of the published code with several processes"
    )
    metric_loss: str | None = config_field(
        None, "a loss of pytorch-metric-learning instead of NT-Xent, e.g. SupConLoss"
    )
    metric_miner: str | None = config_field(None, "a miner of pytorch-metric-learning for that loss")
    metric_options: dict[str, Any] | None = config_field(
        None, "arguments of the loss, e.g. {m: 0.4}; those of the miner as miner_options: {...}"
    )


@dataclass(frozen=True, kw_only=True)
class TSDAEConfig(EncoderConfig):
    """Configuration of TSDAE (Wang et al. 2021): a denoising autoencoder.

    Example:
        >>> from contrastive_encoders import TSDAEConfig
        >>> TSDAEConfig().lr_schedule
        'constant'
    """

    target: str = "contrastive_encoders.encoders.objectives.tsdae.TSDAE"

    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "constant")

    seed: int = config_field(inherits_from="seed", meaning="seed of the initial cross-attention weights")


@dataclass(frozen=True, kw_only=True)
class SentencePairConfig(EmbeddingConfig):
    """Configuration keys of an objective that learns from labeled pairs, optimized as in SBERT's published runs."""

    lr: float = new_default(OptimizerConfig, "lr", 2.0e-5)
    weight_decay: float = new_default(OptimizerConfig, "weight_decay", 0.01)
    eps: float = new_default(OptimizerConfig, "eps", 1.0e-6)
    bias_correction: bool = new_default(OptimizerConfig, "bias_correction", False)
    cut_fraction: float = new_default(OptimizerConfig, "cut_fraction", 0.1)


@dataclass(frozen=True, kw_only=True)
class SRoBERTaConfig(SentencePairConfig):
    """Configuration of S-RoBERTa (Schick and Schütze 2021): regression of the cosine on the scores of DINO's pairs.

    Example:
        >>> from contrastive_encoders import SRoBERTaConfig
        >>> SRoBERTaConfig(lr=1e-5).lr
        1e-05
    """

    target: str = "contrastive_encoders.encoders.objectives.sroberta.SRoBERTa"


@dataclass(frozen=True, kw_only=True)
class DistilScoresConfig(EmbeddingConfig):
    """Configuration of an encoder that learns the scores that a teacher gives to pairs and triplets.

    Example:
        >>> from contrastive_encoders import DistilScoresConfig
        >>> DistilScoresConfig().loss
        'margin_mse'
    """

    target: str = "contrastive_encoders.encoders.objectives.distil_scores.DistilScores"

    lr: float = new_default(OptimizerConfig, "lr", 2.0e-5)
    cut_fraction: float = new_default(OptimizerConfig, "cut_fraction", 0.1)

    loss: Literal["margin_mse", "kl"] = config_field(
        "margin_mse",
        "margin_mse: learn the margin between the positive and each negative; kl: learn the distribution over "
        "the positive and the negatives",
    )
    similarity: Literal["dot", "cosine"] = config_field(
        "dot", "similarity of the embeddings; scores outside -1 to 1 need dot and embeddings that are not normalized"
    )
    temperature: float = config_field(1.0, "kl: the scores of both models are divided by it", gt=0)
    teacher_scale: float = config_field(1.0, "factor that the teacher's scores are multiplied by", gt=0)


@dataclass(frozen=True, kw_only=True)
class CoSENTConfig(SentencePairConfig):
    """Configuration of CoSENT: a ranking loss on the cosines of scored pairs.

    Example:
        >>> from contrastive_encoders import CoSENTConfig
        >>> CoSENTConfig().temperature
        0.05
    """

    target: str = "contrastive_encoders.encoders.objectives.scored_pairs.CoSENT"

    temperature: float = config_field(0.05, "differences of similarities are divided by it", gt=0)


@dataclass(frozen=True, kw_only=True)
class AnglEConfig(CoSENTConfig):
    """Configuration of AnglE (Li and Li 2023): CoSENT plus a loss on angles in complex space.

    Example:
        >>> from contrastive_encoders import AnglEConfig
        >>> AnglEConfig(temperature=0.1).temperature
        0.1
    """

    target: str = "contrastive_encoders.encoders.objectives.scored_pairs.AnglE"


@dataclass(frozen=True, kw_only=True)
class SBERTConfig(SentencePairConfig):
    """Configuration of SBERT (Reimers and Gurevych 2019): a classifier of NLI pairs on ``[u; v; |u - v|]``.

    Example:
        >>> from contrastive_encoders import SBERTConfig
        >>> SBERTConfig(classifier_lr=1e-3).classifier_lr
        0.001
    """

    target: str = "contrastive_encoders.encoders.objectives.sbert_nli.SBERT_NLI"

    classifier_lr: float | None = config_field(
        None, "learning rate of the classifier; null: lr, as published; 0.01 for a backbone with random weights"
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the classifier")


@dataclass(frozen=True, kw_only=True)
class GenSEGeneratorConfig(TrainableConfig):
    """Configuration of GenSE's generator and discriminator (Chen et al. 2022): one T5 for both.

    Example:
        >>> from contrastive_encoders import GenSEGeneratorConfig
        >>> GenSEGeneratorConfig().perplexity
        'corpus'
    """

    target: str = "contrastive_encoders.encoders.objectives.gense_generator.GenSEGenerator"

    optimizer: T5Optimizer = new_default(OptimizerConfig, "optimizer", "adafactor")
    lr: float = new_default(OptimizerConfig, "lr", 5.0e-5)
    lr_schedule: ScheduleName = new_default(OptimizerConfig, "lr_schedule", "linear_constant")
    cut_fraction: float = new_default(OptimizerConfig, "cut_fraction", 0.1)

    prompts: Mapping[str, Any] = config_field(inherits_from="prompts", meaning="prompt templates")
    prompt_assembly: Literal["pieces", "string"] = config_field(
        inherits_from="prompt_assembly",
        meaning="pieces: prompt and sentences are tokenized separately, as published; string: they are joined before "
        "tokenization",
    )
    perplexity: Literal["corpus", "mean_of_batches"] = config_field(
        "corpus", "mean_of_batches: as published, averaged over batches of dev_batch_size texts"
    )
    dev_batch_size: int = config_field(64, "held-out texts per batch", ge=1)
    answer_weight: int = config_field(1, "weight of answer tokens in the loss; use 8 with random weights", ge=1)
    log_every_n_steps: int = config_field(
        inherits_from="log_every_n_steps", meaning="steps between two log entries of the accuracy", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class RerankerConfig(TrainableConfig):
    """Configuration of a cross-encoder that reranks the documents that an encoder finds.

    Example:
        >>> from contrastive_encoders import RerankerConfig
        >>> RerankerConfig().loss
        'binary'
    """

    target: str = "contrastive_encoders.encoders.objectives.reranker.Reranker"

    loss: Literal["binary", "listwise"] = config_field(
        "binary",
        "binary: cross-entropy of each pair; listwise: softmax over a positive and its hard negatives (ListNet)",
    )
    head_lr: float | None = config_field(
        1.0e-3, "learning rate of the scoring head, whose weights are random at first; null: lr", ge=0
    )
    dropout: float | None = config_field(
        None, "dropout of the backbone during training; null: as in the model's config"
    )
    max_length: int | None = config_field(
        None,
        "maximum length of a query and a document together, in tokens; null: what the backbone allows, up to 512",
        ge=1,
    )
    retriever: str | None = config_field(
        None,
        "an encoder (directory, hub id, or run) whose top documents are reranked in evaluation; null: no evaluation",
    )
    rerank_top: int = config_field(100, "number of documents to rerank", ge=1)
    seed: int = config_field(inherits_from="seed", meaning="seed of the initial weights of the scoring head")


KINDS: Mapping[str, type[Any]] = {  # name of ``model=NAME`` -> its settings
    "angle": AnglEConfig,
    "cosent": CoSENTConfig,
    "declutr": DeCLUTRConfig,
    "distil": DistilConfig,
    "distil_scores": DistilScoresConfig,
    "gense": GenSEConfig,
    "gense_generator": GenSEGeneratorConfig,
    "pairs": PairsConfig,
    "reranker": RerankerConfig,
    "sbert_nli": SBERTConfig,
    "simcse": SimCSEConfig,
    "sroberta": SRoBERTaConfig,
    "tsdae": TSDAEConfig,
}
