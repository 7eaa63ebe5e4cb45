"""Configuration keys of data, ``data.KEY`` on a command line. This module does not import torch.

Each data module is built from its config class, whose ``target`` is the class of the module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from contrastive_encoders.core.config_schema import UNSET, config_field
from contrastive_encoders.core.gense_prompts import Assembly
from contrastive_encoders.datamodules.sources.row_reading import RowReadingConfig

Prompts = str | Sequence[str] | Mapping[str, str] | None
AnchorPlacement = Literal["grid", "uniform"]
PositiveSampling = Literal["nearby", "adjacent", "subsuming"]
MaskStrategy = Literal["bert", "all"]
LengthUnit = Literal["tokens", "words"]
PostprocessStep = Literal["shuffle", "deduplicate", "drop_identical", "smooth", "cap", "augment"]  # in published order


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Configuration keys of all data modules."""

    batch_size: int = config_field(
        inherits_from="batch_size", meaning="number of examples per batch, summed over all processes", ge=1
    )
    num_workers: int = config_field(
        0, "number of processes that prepare batches; 0: the training process prepares them", ge=0, le=4096
    )
    quiet: bool = config_field(inherits_from="quiet", meaning="whether to suppress terminal output")


@dataclass(frozen=True, kw_only=True)
class DataConfig(BatchConfig):
    """Configuration keys of all data modules except mixtures."""

    target: str = ""  # class that is built from this config

    tokenizer: str = config_field(inherits_from="backbone", meaning="tokenizer to use: a hub id or a directory")
    append_eos: bool | None = config_field(
        None,
        "whether to append the end-of-sequence token to every text; null: only if the tokenizer of the model does so",
        inherits_from="model.append_eos",
    )
    drop_last: bool = config_field(
        True,
        "whether to drop the last batch of an epoch if it contains fewer than batch_size examples; false: keep it, "
        "as transformers' Trainer does by default; if there are fewer examples than batch_size, a batch contains all",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of shuffling and of the random draws for each example")
    fraction: float = config_field(
        1.0,
        "fraction of the examples to use; with the same seed, a smaller fraction is a subset of a larger one",
        gt=0,
        le=1,
    )
    cache_dir: str | None = config_field(
        None,
        "directory in which tokenized data (token stores) are cached; null: the environment variable "
        "CONTRASTIVE_ENCODERS_CACHE, or ~/.cache/contrastive-encoders",
    )
    tokenizer_workers: int = config_field(
        1,
        "number of processes that tokenize texts; 1: a single process, which uses all threads of the tokenizer",
        ge=1,
        le=4096,
    )
    verify: bool = config_field(
        inherits_from="verify", meaning="whether to check the SHA-256 of the entire token store before it is used"
    )


@dataclass(frozen=True, kw_only=True)
class FileDataConfig(RowReadingConfig, DataConfig):
    """Configuration keys of data from files or from a dataset of the Hugging Face hub."""

    path: str | Sequence[str] = config_field(
        UNSET,
        "path of the data: a file, a directory, a glob pattern, a URL (s3://, gs://, hf://, https://), a dataset of "
        "the Hugging Face hub (OWNER/NAME), or a list of these",
    )
    columns: Sequence[str] | None = config_field(
        None,
        "names of the text columns, in the order of the default names, such as [question,answer] for data=qa; "
        "OUTER.INNER: the field INNER in the column OUTER; null: the default names",
    )
    split: str = config_field("train", 'name of the split to use, if the data is a hub dataset or has a "split" column')
    strip_html: bool = config_field(
        False, "whether to remove HTML tags from the texts in rows and decode HTML entities such as &amp;"
    )
    name: str | None = config_field(
        None, "name of the dataset config, if a hub dataset (data.path=OWNER/NAME) has several"
    )
    revision: str | None = config_field(None, "branch, tag, or commit of a hub dataset; null: the current main branch")
    data_files: str | Sequence[str] | None = config_field(
        None,
        "pattern, or list of patterns, that selects files of a hub dataset; null: the files that the dataset defines",
    )
    streaming: bool | None = config_field(
        None,
        "whether to stream a hub dataset instead of storing a copy on disk; null: it is streamed if the split has "
        "at least 10 GB",
    )


@dataclass(frozen=True, kw_only=True)
class RowDataConfig(DataConfig):
    """Configuration keys of data whose rows consist of texts, which are truncated to a maximum length."""

    max_length: int | None = config_field(
        128,
        "maximum length in tokens, including special tokens; null: the length that covers 99 % of the texts, up to "
        "the maximum of the encoder, and up to 512 if model.max_length is not set. If the key is not set, the first of "
        "these that is set applies: "
        "train_max_length of the run, default_train_max_length of the model, 128",
        inherits_from=("train_max_length", "default_train_max_length"),
        ge=1,
    )
    prompts: Prompts = config_field(
        None,
        "prompts that are prepended to the texts: one string for all columns, a list with one string per column, "
        "or a mapping from column names to strings, e.g. {anchor: 'query: ', positive: 'passage: '}; null: the "
        "prompts of the backbone; {}: no prompts",
    )


@dataclass(frozen=True, kw_only=True)
class HeldOutDataConfig:
    """Configuration keys of data of which a part is held out as a retrieval task."""

    held_out_fraction: float = config_field(
        0.0,
        "fraction of the data that is held out from training and evaluated as the task held_out, at most 1,000 rows",
        inherits_from="held_out_fraction",
        ge=0,
        le=0.5,
    )
    max_held_out_documents: int = config_field(
        100_000,
        "maximum number of documents that are ranked for each query of the task held_out; if there are more, a "
        "sample is used",
        ge=1,
    )


@dataclass(frozen=True, kw_only=True)
class SentenceDataConfig(RowDataConfig, FileDataConfig):
    """Configuration of single sentences or other short texts.

    Example:
        >>> from contrastive_encoders import SentenceDataConfig
        >>> SentenceDataConfig(path="sentences.txt").path
        'sentences.txt'
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.Sentences"

    deletion_ratio: float | None = config_field(
        None,
        "fraction of the words to delete from a second copy of each text, for model=tsdae; null: no second copy",
        inherits_from="deletion_ratio",
        gt=0,
        lt=1,
    )
    concat_sentences: int | None = config_field(
        None,
        "number n of consecutive texts that are joined into one longer text: of every 2n texts, the first n stay "
        "unchanged and the other n are joined; null: no texts are joined",
        ge=2,
    )


@dataclass(frozen=True, kw_only=True)
class NLIDataConfig(RowDataConfig, FileDataConfig):
    """Configuration of NLI pairs: premise, hypothesis, and label.

    Example:
        >>> from contrastive_encoders import NLIDataConfig
        >>> NLIDataConfig(path="nli.jsonl").path
        'nli.jsonl'
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.NLIPairs"


@dataclass(frozen=True, kw_only=True)
class TripletDataConfig(HeldOutDataConfig, RowDataConfig, FileDataConfig):
    """Configuration of anchors with a positive and optional hard negatives.

    Example:
        >>> from contrastive_encoders import TripletDataConfig
        >>> TripletDataConfig(path="triplets.jsonl", fraction=0.5).fraction
        0.5
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.Triplets"

    neighbor_group_size: int | None = config_field(
        None,
        "maximum number of rows per group, at most an eighth of batch_size; a group consists of rows whose first "
        "texts are similar according to the untrained encoder, and which are placed in one batch, or in two adjacent "
        "batches if the group is at a border; null: random batches",
        inherits_from="neighbor_group_size",
        ge=2,
    )
    max_length: int | None = config_field(
        None,
        "maximum length in tokens, including special tokens; null: the length that covers 99 % of the texts, up to "
        "the maximum of the encoder, and up to 512 if model.max_length is not set. If the key is not set, "
        "train_max_length of the run applies if it is set, else null",
        inherits_from="train_max_length",
        ge=1,
    )


@dataclass(frozen=True, kw_only=True)
class ScoredTripletDataConfig(RowDataConfig, FileDataConfig):
    """Configuration of anchors with a positive and hard negatives, each with the score of a teacher.

    Example:
        >>> from contrastive_encoders import ScoredTripletDataConfig
        >>> ScoredTripletDataConfig(path="scored.jsonl").path
        'scored.jsonl'
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.ScoredTriplets"


@dataclass(frozen=True, kw_only=True)
class QuestionDataConfig(TripletDataConfig):
    """Configuration of pairs of a question and its answer.

    Example:
        >>> from contrastive_encoders import QuestionDataConfig
        >>> QuestionDataConfig(path="faq.csv", columns=("question", "answer")).columns
        ('question', 'answer')
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.QuestionAnswers"


@dataclass(frozen=True, kw_only=True)
class ScoredPairDataConfig(RowDataConfig, FileDataConfig):
    """Configuration of text pairs with similarity scores.

    Example:
        >>> from contrastive_encoders import ScoredPairDataConfig
        >>> ScoredPairDataConfig(path="pairs.csv").postprocess
        'auto'
    """

    target: str = "contrastive_encoders.datamodules.scored_pairs.ScoredPairs"

    postprocess: Literal["auto", "on", "off"] = config_field(
        "auto",
        "whether to post-process the pairs; auto: only pairs that are raw output of a generator, that is, pairs "
        "with a manifest, or with the columns text_a, text_b, and label, where labels are strings",
    )
    postprocess_steps: Sequence[PostprocessStep] = config_field(
        get_args(PostprocessStep),
        "post-processing steps, in the order in which they run",
    )
    ignore_case: bool = config_field(
        False,
        "whether the post-processing step `drop_identical` ignores case and surrounding whitespace when it compares "
        "texts",
    )
    smoothing: float = config_field(
        0.2,
        "strength of label smoothing in the post-processing step `smooth`; 0.2 changes the labels 0, 0.5, 1 to 0.1, "
        "0.5, 0.9; 0: no smoothing",
        ge=0,
        lt=1,
    )
    max_pairs_per_label: int = config_field(
        2,
        "maximum number of pairs that the post-processing step `cap` keeps for each combination of first text (x1) "
        "and label; 0: no limit",
        ge=0,
    )
    random_pairs: int = config_field(
        2,
        "number of pairs with label 0 that the post-processing step `augment` adds for each first text (x1), by "
        "pairing it with a random second text (x2); 0: none",
        ge=0,
    )
    random_pair_source: Literal["paper", "published"] = config_field(
        "paper",
        "pairs from which the post-processing step `augment` draws a random second text (x2); paper: only pairs "
        "with a different first text (x1), as in the paper; published: all pairs, as in the published code",
    )
    postprocess_seed: int = config_field(42, "random seed of the post-processing")
    dev_fraction: float = config_field(
        0.1,
        "fraction of the pairs that is held out as the task dino-dev; if the data contains rows with split=valid, "
        "these rows are held out instead",
        ge=0,
        lt=1,
    )
    split_by: Literal["pair", "x1"] = config_field(
        "pair",
        "how pairs are split into training pairs and dino-dev; pair: at random within each label value, as "
        "published; x1: all pairs with the same first text (x1) are put into the same split",
    )


@dataclass(frozen=True, kw_only=True)
class GenerationDataConfig(FileDataConfig):
    """Configuration of NLI triplets that train a generator to write and classify hypotheses.

    Example:
        >>> from contrastive_encoders import GenerationDataConfig
        >>> GenerationDataConfig(path="triplets.jsonl").target_length
        48
    """

    target: str = "contrastive_encoders.datamodules.nli_generation.NLIGeneration"

    prompts: dict[str, Any] = config_field(
        inherits_from="prompts", meaning="prompts with which the generator is trained"
    )
    prompt_assembly: Assembly = config_field(
        inherits_from="prompt_assembly",
        meaning="how prompts and sentences are tokenized; pieces: each separately; string: joined into one string",
    )
    source_length: int = config_field(96, "maximum number of tokens of each source sentence, without the prompt", ge=2)
    target_length: int = config_field(
        48, "maximum number of tokens of the target, including the end-of-sequence token", ge=2
    )
    dev_path: str | Sequence[str] | None = config_field(
        None,
        'file of held-out triplets, or a list of files; null: the rows of data.path whose "split" column equals '
        "dev_split",
    )
    dev_split: str = config_field(
        "valid",
        'value of the "split" column that marks held-out rows; if no row has this value, dev_fraction of the '
        "premises is held out",
    )
    dev_fraction: float = config_field(
        0.02, "fraction of the premises to hold out if dev_path is null and no row has split=dev_split", gt=0, lt=1
    )
    dev_rows: int | None = config_field(
        None, "maximum number of held-out triplets to evaluate, which makes the evaluation faster; null: all", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class DocstringDataConfig(DataConfig):
    """Configuration keys of data from the docstrings of the installed Python packages."""

    held_out_every: int = config_field(
        10, "number n such that about one in n modules is held out for the task pydocs; 0: no module is held out"
    )
    held_out_part: int = config_field(
        0,
        "which of the held_out_every parts of the Python modules is held out, from 0 to held_out_every - 1; tune "
        "settings with a different part than the one whose scores you report",
    )
    min_words: int = config_field(
        1024, "minimum number of words in the docstrings of a module; modules with fewer words are skipped"
    )


@dataclass(frozen=True, kw_only=True)
class DocstringPairDataConfig(RowDataConfig, DocstringDataConfig):
    """Configuration of pairs from the docstrings of the installed packages: summary line and body.

    Example:
        >>> from contrastive_encoders import DocstringPairDataConfig
        >>> DocstringPairDataConfig(max_length=64).max_length
        64
    """

    target: str = "contrastive_encoders.datamodules.pydocs_pairs.PydocsPairs"

    max_length: int | None = config_field(
        96,
        "maximum length in tokens, including special tokens; null: the length that covers 99 % of the texts. If "
        "the key is not set, the first of these that is set applies: train_max_length of the run, "
        "default_train_max_length of the model, 96",
        inherits_from=("train_max_length", "default_train_max_length"),
        ge=1,
    )


@dataclass(frozen=True, kw_only=True)
class SpanDataConfig(DataConfig):
    """Configuration keys of spans that are drawn from documents."""

    anchors_per_document: int = config_field(2, "number of anchor spans per document", ge=1)
    positives_per_anchor: int = config_field(2, "number of positive spans per anchor", ge=1)
    min_span: int = config_field(32, "minimum length of a span in tokens", ge=1)
    max_span: int | Literal["auto"] = config_field(
        512,
        "maximum length of a span in tokens; auto: the largest value up to 512 for which 9 of 10 documents "
        "are long enough",
    )
    anchor_placement: AnchorPlacement = config_field(
        "grid",
        "how the positions of anchors are drawn; uniform: anywhere in the document, as in the paper; grid: the "
        "document is divided into windows of max_span tokens, and each anchor is drawn inside a different window, as "
        "in the published code",
    )
    positive_sampling: PositiveSampling = config_field(
        "nearby",
        "position of a positive relative to its anchor; nearby: the positive touches the anchor, overlaps it, or is "
        "inside it; adjacent: the positive touches the anchor; subsuming: the positive is inside the anchor",
    )
    align_to_words: bool = config_field(False, "whether spans start and end at word boundaries")
    min_document_length: int | None = config_field(
        None, "minimum length of a document, in the unit length_unit; null: 2 * anchors_per_document * max_span tokens"
    )
    length_unit: LengthUnit = config_field(
        "tokens", "unit of min_document_length; words: words separated by whitespace, as in the published script"
    )
    lowercase: bool = config_field(False, "whether to lowercase texts")
    mlm_probability: float = config_field(
        0.15, "fraction of an anchor's tokens that masked language modeling predicts; 0: no MLM", ge=0, lt=1
    )
    mask_strategy: MaskStrategy | None = config_field(
        None,
        "how predicted tokens are replaced; bert: 80 % by the mask token, 10 % by a random token, 10 % unchanged; "
        "all: all by the mask token; null: bert",
    )
    mask_token: str | None = config_field(
        None, "mask token; null: the mask token of the model", inherits_from="model.mask_token"
    )
    max_length: int = config_field(
        512,
        "maximum length of a sequence in tokens, including special tokens. If the key is not set, the first of "
        "these that is set applies: train_max_length of the run, default_train_max_length of the model, 512",
        inherits_from=("train_max_length", "default_train_max_length"),
        ge=1,
    )
    prompts: Prompts = config_field(
        None,
        "prompt that is prepended to the spans, or prompts for the two texts of a pair of passages: one string for "
        "both, or a list of two; null: the prompts of the backbone (for spans, its default prompt); {}: no prompts",
    )
    match_span_count_of: int | None = config_field(
        None,
        "number of anchors per document in another run, to which this run is compared: this run draws as many "
        "anchors per batch and per epoch as that run; must be a multiple of anchors_per_document; null: no matching",
    )


@dataclass(frozen=True, kw_only=True)
class DocumentDataConfig(HeldOutDataConfig, SpanDataConfig, RowDataConfig, FileDataConfig):
    """Configuration of long documents, from which spans or pairs of passages are drawn.

    Example:
        >>> from contrastive_encoders import DocumentDataConfig
        >>> DocumentDataConfig(path="documents", max_span=256).positives_per_anchor
        2
    """

    target: str = "contrastive_encoders.datamodules.documents.TextDocuments"

    document: Literal["line", "file"] | None = config_field(
        None,
        "what one document is in .txt files: line (each line) or file (the entire file); null: line if the path is "
        "a file, file if the path is a directory",
    )


@dataclass(frozen=True, kw_only=True)
class ModuleDataConfig(SpanDataConfig, DocstringDataConfig):
    """Configuration of spans that are drawn from the docstrings of the installed packages. Each module is a document.

    Example:
        >>> from contrastive_encoders import ModuleDataConfig
        >>> ModuleDataConfig(anchors_per_document=1).anchors_per_document
        1
    """

    target: str = "contrastive_encoders.datamodules.documents.PydocsDocuments"


@dataclass(frozen=True, kw_only=True)
class MixtureDataConfig(BatchConfig):
    """Configuration of a mixture of several datasets (parts), from which batches are drawn.

    Example:
        >>> from contrastive_encoders import MixtureDataConfig, QuestionDataConfig
        >>> MixtureDataConfig(temperature=2.0).homogeneous
        True
    """

    target: str = "contrastive_encoders.datamodules.mixture.Mixture"

    parts: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "datasets of the mixture, called parts: a mapping from the name of each part to its "
            "configuration keys, such as {nli: {data: triplets, path: FILE}}; all parts share batch_size, backbone, "
            "seed, and drop_last"
        },
    )
    weights: Mapping[str, float] = field(
        default_factory=dict,
        metadata={
            "meaning": "relative frequency of each part, such as {nli: 2, docs: 1} or data.weights.nli=2; "
            "if no weights are set, the sizes of the parts and temperature determine the frequencies"
        },
    )
    temperature: float = config_field(
        1.0,
        "exponent for the frequencies if no weights are set: parts are drawn in proportion to "
        "size^(1/temperature); 1: every row is used once per epoch; larger values: the frequencies are more equal",
        gt=0,
    )
    homogeneous: bool = config_field(
        True,
        "whether all rows of a batch come from one part; false: each batch mixes rows of all parts, which must "
        "have the same columns",
    )
    drop_last: bool = config_field(
        True,
        "whether to drop the last batch of each part of the mixture if it contains fewer than batch_size rows; "
        "false: keep it, as transformers' Trainer does by default; if a part has fewer rows than batch_size, a batch "
        "contains all of them",
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the order in which parts are drawn")


DATA_CONFIGS: Mapping[str, type[Any]] = {  # name in ``data=NAME`` -> its settings
    "dino": ScoredPairDataConfig,
    "mixture": MixtureDataConfig,
    "nli": NLIDataConfig,
    "nli_generation": GenerationDataConfig,
    "pydocs": ModuleDataConfig,
    "pydocs_pairs": DocstringPairDataConfig,
    "qa": QuestionDataConfig,
    "scored_triplets": ScoredTripletDataConfig,
    "sentences": SentenceDataConfig,
    "text": DocumentDataConfig,
    "triplets": TripletDataConfig,
}


def choice_of(config: Any) -> str:
    """Return the name in ``data=NAME`` whose class is built from a config, or the import path of a custom class."""
    return next((name for name, kind in DATA_CONFIGS.items() if kind.target == config.target), str(config.target))
