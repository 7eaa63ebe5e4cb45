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

    vocab_size: int = config_field(12_288, "entries of the vocabulary", ge=1)
    hidden_size: int = config_field(256, "numbers of a state", ge=1)
    layers: int = config_field(2, "of the encoder, and of a decoder", ge=1)
    heads: int = config_field(4, "of attention", ge=1)
    intermediate_size: int = config_field(1024, "between the two linear layers of a block", ge=1)
    max_length: int = config_field(512, "tokens of a text, special tokens included", ge=1)
    dropout: float = config_field(0.1, "of attention and states", ge=0, le=1)
    lowercase: bool = config_field(True, "true: the tokenizer lower-cases texts")


class LoraKeys(TypedDict):
    """Configuration keys of an adapter, which stand under ``model.lora``."""

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

    rank: int | None = config_field(None, "16 is usual; null: all weights are trained", ge=1)
    alpha: float | None = config_field(
        None, "what the products are scaled by, alpha / rank; null: twice the rank", ge=0
    )
    dropout: float = config_field(0.0, "of what the products read", ge=0, le=1)
    targets: str | Sequence[str] = config_field(
        "auto", "auto: all linear layers but a language-model head; or names, e.g. [q_proj,v_proj]"
    )
    stages: Literal["merge", "stack"] = config_field(
        "merge",
        "merge: the adapter of the stage before goes into the weights; stack: it stays, frozen, below this one",
    )
    seed: int = config_field(inherits_from="seed", meaning="of the first weights")

    @property
    def keys(self) -> LoraKeys:
        """The same as a checkpoint records it."""
        return cast(LoraKeys, asdict(self))


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """Configuration keys of the backbone: its name, the trained weights, their precision, and the tokens of a chunk."""

    backbone: str = config_field(inherits_from="backbone", meaning="hub id, folder, or folder of a run")
    freeze: str | None = config_field(
        inherits_from="freeze", meaning="embeddings; layers:N: them and the N lowest layers"
    )
    lora: LoRAConfig = field(
        default_factory=LoRAConfig, metadata={"meaning": "an extra: pip install 'contrastive-encoders[lora]'"}
    )
    frozen_weights: Literal["fp32", "bf16", "nf4"] = config_field(
        "fp32",
        "with lora.rank: bf16: in half the memory; nf4: in an eighth while training (an extra: pip install "
        "'contrastive-encoders[bits]')",
    )
    compile: bool | str = config_field(
        False,
        "true: the layers go through torch's compiler while they are trained, which takes a minute or more at the "
        "start; aot_eager ...: another backend of it",
    )
    token_budget: int | None = config_field(
        inherits_from="token_budget", meaning="tokens computed at once, padding counted", ge=1
    )
    recompute: Literal["auto", "on", "off", "layers"] = config_field(
        "auto",
        "of activations in the backward pass; auto: where a batch exceeds the budget; layers: each layer of a chunk, "
        "too, for long texts",
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Configuration keys of the optimiser and its learning-rate schedule."""

    optimizer: T5Optimizer = config_field(
        "adamw", "adafactor_scaled: as T5 was pretrained, for random weights, with an lr of 0.02"
    )
    lr: float = config_field(3.0e-5, "the largest learning rate of the schedule", ge=0)
    weight_decay: float = config_field(0.0, "decoupled from the gradient", ge=0)
    betas: Sequence[float] = config_field((0.9, 0.999), "of AdamW; eps and bias_correction, too", ge=0, lt=1)
    eps: float = config_field(1.0e-8, "added to the root of the second moment", ge=0)
    bias_correction: bool = config_field(True, "false: AdamW of older published runs")
    lr_schedule: ScheduleName = config_field(
        "linear", "linear_from_zero: as transformers, whose first step has the rate zero"
    )
    cut_fraction: float = config_field(
        0.0, "of the steps: warm-up; of linear_constant those that are constant before the fall", ge=0, le=1
    )
    schedule_ratio: float = config_field(32.0, "of slanted_triangular: the largest rate over the smallest")
    layer_decay: float | None = config_field(
        None,
        "0.9: the rate of each layer is 0.9 times that of the one above it, of the embeddings the least; null: one "
        "rate",
    )


@dataclass(frozen=True, kw_only=True)
class TrainableConfig(BackboneConfig, OptimizerConfig):
    """Keys that all trained models share."""

    target: str = ""  # of the class that is made from them


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TrainableConfig):
    """Configuration keys of an objective that trains an encoder."""

    pooling: str | None = config_field(
        None,
        "mean, cls, last, weighted_mean, max, cls_before_pooler, pooler_output, avg_top2, avg_first_last, "
        "avg_embedding_last, first_decoder; null: that of the backbone; if this is a plain transformer, cls for simcse "
        "and tsdae, first_decoder for gense, mean for the others",
    )
    normalize: bool | None = config_field(
        None,
        "true: vectors of length 1 in scores and exports, so that dot product and cosine rank alike; false: as they "
        "are pooled; null: as the folder of the backbone has it",
    )
    layers: int | Sequence[int] | None = config_field(
        None,
        "of the backbone that are kept, from 0, e.g. [0,2,3,5]; a number: so many, evenly spaced from the first to the "
        "last; null: all",
    )
    append_end: bool | None = config_field(
        None, "true: an end of sequence behind every text, for pooling=last of a decoder"
    )
    attention: str | None = config_field(
        None, "bidirectional: of a causal language model, too; causal; null: as its config says"
    )
    dropout: float | None = config_field(
        None,
        "of the backbone in training: attention, states and embeddings, whatever its family calls them; null: as its "
        "config says",
    )
    attention_dropout: float | None = config_field(
        None, "of its attention alone, 0.3 of a decoder (LLM2Vec); null: dropout"
    )
    max_length: int | None = config_field(
        None,
        "tokens that the encoder reads in scores and export; null: that of the backbone; if this is a plain "
        "transformer, what it allows, up to 512",
        ge=1,
    )
    attn_implementation: str = config_field(
        "auto",
        "auto: texts stand one behind the other where the family allows it; unpadded: the same, or an error; sdpa, "
        "eager, flash_attention_2 ...: padded, as transformers has them",
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(EncoderConfig):
    """Configuration keys that all objectives have whose loss compares vectors."""

    matryoshka: Sequence[int] | None = config_field(
        None,
        "[768,256,64]: the loss is summed over prefixes of the vector of so many numbers, each to be used alone",
    )
    matryoshka_weights: Sequence[float] | None = config_field(None, "of each size, e.g. [1,1,0.5]; null: 1")


TEACHER = "an encoder (folder, hub id, run) whose vectors of the texts, computed once before training, are learnt"
DISTANCE = "cosine: one less the cosine to the teacher's vectors; mse: their mean squared difference"


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

    temperature: float = config_field(0.05, "what cosines are divided by", gt=0)
    exclude_equal_texts: bool = config_field(
        True, "equal texts of the batch, on any process, are no negatives of each other; false: as in the papers"
    )
    guide: str | None = config_field(
        None,
        "an encoder (folder, hub id, run): what it finds nearer to a text than its partner is left out as a false "
        "negative",
    )
    guide_absolute_margin: float | None = config_field(
        None, "or nearer than the partner's cosine less this; null: 0", ge=0, le=2
    )
    guide_relative_margin: float | None = config_field(None, "or less this share of it, such as 0.05", ge=0, le=1)
    teacher: str | None = config_field(None, f"{TEACHER} besides")
    teacher_weight: float | None = config_field(
        None, "of the distance to the teacher's vectors in the loss; null: 1", gt=0
    )
    distance: Literal["cosine", "mse"] | None = config_field(None, f"{DISTANCE}; null: cosine")
    log_every_n_steps: int = config_field(
        inherits_from="log_every_n_steps", meaning="steps between two diagnostics", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class HardNegativesConfig(ContrastiveConfig):
    """Configuration keys of an objective whose anchors may have hard negatives of their own."""

    hard_negative_weight: float = config_field(0.0, "a logit: w counts an anchor's own hard negative e^w times")
    hardness_strength: float = config_field(
        0.0,
        "5 in EmbeddingGemma: an anchor's own hard negative counts e^(5 * cosine) times, the nearer the more",
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
        "also document_query, query_query, document_document: whose candidates a pair is told from",
    )
    partition: str = config_field(
        "joint",
        "joint: one softmax over the candidates of all directions; per_direction: one each for query_document and "
        "document_query, the symmetric form",
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
        "true: they are no part of the encoder; false: they are, as in supervised SimCSE (a layer that the backbone "
        "has behind its pooling takes their place); null: they are, unless the backbone is an encoder already",
    )
    seed: int = config_field(inherits_from="seed", meaning="of the MLP's first weights")


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
        "behind every text; null: none; auto: that of the backbone; if this is a plain transformer, prompts.embedding",
    )
    default_prompt: str | None = config_field(
        inherits_from="prompts.embedding", meaning="of a plain transformer, with prompt=auto"
    )
    truncation: Literal["keep_prompt", "official"] = config_field(
        "keep_prompt", "official: long texts push the prompt out in training, as published"
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

    contrastive_weight: float = config_field(1.0, "of the contrastive loss")
    mlm_weight: float | None = config_field(
        None, "of masked language modelling; null: 1 where the backbone predicts masked tokens, else 0"
    )
    mask_anchors_for_contrast: bool = config_field(True, "false: the unmasked anchor is encoded besides")
    mask_token: str | None = config_field(None, 'one of the vocabulary; null: the tokenizer\'s own, else "_"')
    reduction: Literal["mean", "sum"] = config_field("mean", "sum: the paper's equation")
    loss_scale: Literal["exact", "paper"] = config_field("exact", "paper: the published gradient on several processes")
    metric_loss: str | None = config_field(
        None, "a loss of pytorch-metric-learning in NT-Xent's place, e.g. SupConLoss"
    )
    metric_miner: str | None = config_field(None, "a miner of pytorch-metric-learning for that loss")
    metric_options: dict[str, Any] | None = config_field(
        None, "of the loss, e.g. {m: 0.4}; miner_options: {...} among them"
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

    seed: int = config_field(inherits_from="seed", meaning="of the cross-attention's first weights")


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
        "margin_mse: how much better the positive is than each negative; kl: the distribution over positive and "
        "negatives",
    )
    similarity: Literal["dot", "cosine"] = config_field(
        "dot", "of the encoder's vectors; scores beyond -1 to 1 need dot and vectors that are not of length 1"
    )
    temperature: float = config_field(1.0, "of kl: what both scores are divided by", gt=0)
    teacher_scale: float = config_field(1.0, "what the teacher's scores are multiplied by first", gt=0)


@dataclass(frozen=True, kw_only=True)
class CoSENTConfig(SentencePairConfig):
    """Configuration of CoSENT: a ranking loss on the cosines of scored pairs.

    Example:
        >>> from contrastive_encoders import CoSENTConfig
        >>> CoSENTConfig().temperature
        0.05
    """

    target: str = "contrastive_encoders.encoders.objectives.scored_pairs.CoSENT"

    temperature: float = config_field(0.05, "what differences of similarities are divided by", gt=0)


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
        None, "null: lr, as published; 0.01 where the backbone starts from random weights"
    )
    seed: int = config_field(inherits_from="seed", meaning="of the classifier's first weights")


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

    prompts: Mapping[str, Any] = config_field(inherits_from="prompts", meaning="texts around the sentences")
    prompt_assembly: Literal["pieces", "string"] = config_field(
        inherits_from="prompt_assembly",
        meaning="pieces: as published; string: prompt and sentences are joined before they are tokenised",
    )
    perplexity: Literal["corpus", "mean_of_batches"] = config_field(
        "corpus", "mean_of_batches: as published, of dev_batch_size texts each"
    )
    dev_batch_size: int = config_field(64, "held-out texts that are scored at once", ge=1)
    answer_weight: int = config_field(
        1, "times that a token of an answer counts in the loss; from random weights, 8", ge=1
    )
    log_every_n_steps: int = config_field(
        inherits_from="log_every_n_steps", meaning="steps between two accuracies", ge=1
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
        "binary", "of each pair for itself; listwise: of a positive among its hard negatives (ListNet)"
    )
    head_lr: float | None = config_field(
        1.0e-3, "learning rate of the layers that give the score, which start from random weights; null: lr", ge=0
    )
    dropout: float | None = config_field(
        None, "of the backbone in training: attention, states and embeddings; null: as its config says"
    )
    max_length: int | None = config_field(
        None, "tokens of a query and a document together; null: what the backbone allows, up to 512", ge=1
    )
    retriever: str | None = config_field(
        None, "an encoder (folder, hub id, run), whose first documents are reranked in scores; null: no scores"
    )
    rerank_top: int = config_field(100, "how many of them", ge=1)
    seed: int = config_field(inherits_from="seed", meaning="of the first weights of the layers that give the score")


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
