"""Configuration keys of data, ``data.KEY`` on a command line. This module does not import torch.

Each data module is built from its config class, whose ``target`` is the class of the module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.core.config_schema import UNSET, config_field
from contrastive_encoders.io.text_files import ENCODING_MEANING

Prompts = str | Sequence[str] | Mapping[str, str] | None
AnchorPlacement = Literal["grid", "uniform"]
PositiveSampling = Literal["nearby", "adjacent", "subsuming"]
MaskStrategy = Literal["bert", "all"]
OnError = Literal["fail", "skip"]
LengthUnit = Literal["tokens", "words"]
Assembly = Literal["pieces", "string"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Configuration keys of all data modules except for mixtures."""

    target: str = ""  # class that is built from this config

    tokenizer: str = config_field(inherits_from="backbone", meaning="hub id or directory of the tokenizer")
    append_eos: bool | None = config_field(
        None,
        "whether to append the end-of-sequence token to every text; null: as the model does",
        inherits_from="model.append_eos",
    )
    batch_size: int = config_field(inherits_from="batch_size", meaning="examples per batch, over all processes", ge=1)
    drop_last: bool = config_field(
        True, "whether to drop the last, smaller batch of an epoch; false: keep it, as transformers does"
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of shuffling and of the random draws for each example")
    fraction: float = config_field(
        1.0, "fraction of the examples to use; the examples of 0.1 are among those of 0.2", gt=0, le=1
    )
    cache_dir: str | None = config_field(
        None, "directory of the token stores; null: CONTRASTIVE_ENCODERS_CACHE or ~/.cache/contrastive-encoders"
    )
    num_workers: int = config_field(0, "number of processes that prepare batches", ge=0, le=4096)
    tokenizer_workers: int = config_field(
        1, "number of processes that tokenize; 1: the threads of the tokenizer", ge=1, le=4096
    )
    verify: bool = config_field(
        inherits_from="verify", meaning="whether to check the SHA-256 of the entire token store first"
    )
    quiet: bool = config_field(inherits_from="quiet", meaning="whether to suppress terminal output")


@dataclass(frozen=True, kw_only=True)
class FileDataConfig(DataConfig):
    """Configuration keys of data from files or from a dataset of the Hugging Face hub."""

    path: str | Sequence[str] = config_field(
        UNSET,
        "a file, a directory, a glob pattern, a URL (s3://, gs://, hf://, https://), a dataset of the Hugging "
        "Face hub (OWNER/NAME), or a list of these",
    )
    columns: Sequence[str] | None = config_field(
        None,
        "names of the text columns, in the expected order, if the file uses other names; OUTER.INNER for "
        "nested columns",
    )
    split: str = config_field("train", 'split to use if rows have a "split" column')
    on_error: OnError = config_field("fail", "treatment of unreadable rows: fail: stop; skip: drop and count them")
    max_skipped: float = config_field(
        0.05,
        "maximum fraction, with on_error=skip, of undecodable or malformed rows; empty rows do not count",
        ge=0,
        le=1,
    )
    encoding: str | None = config_field(None, ENCODING_MEANING)
    strip_html: bool = config_field(
        False, "whether to remove HTML tags from texts in rows and decode entities such as &amp;"
    )
    name: str | None = config_field(None, "config name of a hub dataset (data.path=OWNER/NAME)")
    revision: str | None = config_field(None, "branch, tag, or commit of a hub dataset; null: the current main branch")
    data_files: str | Sequence[str] | None = config_field(
        None, "files of a hub dataset to use, as a pattern; null: those that the dataset defines"
    )
    streaming: bool | None = config_field(
        None, "whether to stream a hub dataset without a copy on disk; null: only if the split has 10 GB or more"
    )


@dataclass(frozen=True, kw_only=True)
class RowDataConfig(DataConfig):
    """Configuration keys of data whose rows are texts, truncated to a maximum length."""

    max_length: int | None = config_field(
        128,
        "maximum length in tokens, special tokens included; by default train_max_length, else the usual length "
        "of the model; null: a length that covers 99 % of the texts, up to what the backbone reads",
        inherits_from=("train_max_length", "default_train_max_length"),
        ge=1,
    )
    prompts: Prompts = config_field(
        None,
        "prompts before the texts: one string for all, a list with one per column, or a mapping of "
        "column names, e.g. {anchor: 'query: ', positive: 'passage: '}; null: the prompts of the backbone; "
        "{}: none",
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
        "fraction of the words that are deleted in a second copy, for model=tsdae; null: no copy",
        inherits_from="deletion_ratio",
    )
    concat_sentences: int | None = config_field(
        None,
        "number of texts n: every other group of n texts is joined into one longer text; null: none",
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
class TripletDataConfig(RowDataConfig, FileDataConfig):
    """Configuration of anchors with a positive and optional hard negatives.

    Example:
        >>> from contrastive_encoders import TripletDataConfig
        >>> TripletDataConfig(path="triplets.jsonl", fraction=0.5).fraction
        0.5
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.Triplets"

    held_out_fraction: float = config_field(
        0.0,
        "fraction of the rows that is kept from training and evaluated as the task held_out",
        inherits_from="held_out_fraction",
    )
    max_held_out_documents: int = config_field(
        100_000,
        "maximum number of texts that the queries of held_out are ranked against; of more texts, a sample is used",
        ge=1,
    )
    neighbor_group_size: int | None = config_field(
        None,
        "size of the groups of rows with similar first texts that are placed in the same batch (at most an "
        "eighth of the batch), by the embeddings of the untrained encoder; null: random batches",
        inherits_from="neighbor_group_size",
        ge=2,
    )
    max_length: int | None = config_field(
        None,
        "maximum length in tokens, special tokens included; by default train_max_length; null: a length that "
        "covers 99 % of the texts, up to what the backbone reads",
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
    """Configuration of question-answer pairs.

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
        "whether to post-process the pairs; auto: only if they come from a generator, that is if they have a "
        "manifest or the columns text_a, text_b, and labels as strings",
    )
    postprocess_steps: Sequence[str] = config_field(
        ("shuffle", "deduplicate", "drop_identical", "smooth", "cap", "augment"),
        "steps of the post-processing, in this order",
    )
    ignore_case: bool = config_field(False, "whether drop_identical ignores case and surrounding whitespace")
    smoothing: float = config_field(
        0.2, "label smoothing of the step smooth; 0.2 turns 0, 0.5, 1 into 0.1, 0.5, 0.9; 0: none"
    )
    max_pairs_per_label: int = config_field(2, "maximum number of pairs per x1 and label in the step cap; 0: no limit")
    random_pairs: int = config_field(2, "number of random x2 per x1, with label 0, in the step augment; 0: none")
    random_pair_source: Literal["paper", "published"] = config_field(
        "paper", "source of a random x2: published: any entry; paper: only entries with another x1"
    )
    postprocess_seed: int = config_field(42, "seed of the post-processing")
    dev_fraction: float = config_field(
        0.1,
        "fraction of the pairs that is held out as the task dino-dev; rows with split=valid are used instead "
        "if there are any",
        ge=0,
        lt=1,
    )
    split_by: Literal["pair", "x1"] = config_field(
        "pair", "unit of held-out pairs: pair: by label value, as published; x1: no x1 is on both sides"
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

    prompts: dict[str, Any] = config_field(inherits_from="prompts", meaning="prompts of the generator")
    prompt_assembly: Assembly = config_field(
        inherits_from="prompt_assembly",
        meaning="tokenization of prompts: pieces: separately from the sentences; string: joined with them",
    )
    source_length: int = config_field(96, "maximum number of tokens of each sentence, without the prompt", ge=2)
    target_length: int = config_field(
        48, "maximum number of tokens of the target, end-of-sequence token included", ge=2
    )
    dev_path: str | None = config_field(None, "file of held-out triplets; null: the rows with split=dev_split")
    dev_split: str = config_field(
        "valid", 'name of the held-out split if rows have a "split"; if no row has it, dev_fraction of the premises'
    )
    dev_fraction: float = config_field(
        0.02, "fraction of the premises to hold out if there is no held-out split", gt=0, lt=1
    )
    dev_rows: int | None = config_field(
        None, "maximum number of held-out triplets, for a faster evaluation; null: all", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class DocstringDataConfig(DataConfig):
    """Configuration keys of data from the docstrings of the installed Python packages."""

    held_out_every: int = config_field(
        10, 'number n: one of every n modules is held out for the task "pydocs"; 0: none'
    )
    held_out_part: int = config_field(
        0, "index of the held-out module among n; tune settings on another index than the one you report"
    )
    min_words: int = config_field(1024, "minimum number of words in the docstrings of a module")


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
        "maximum length in tokens, special tokens included; by default train_max_length, else the usual length "
        "of the model; null: a length that covers 99 % of the texts",
        inherits_from=("train_max_length", "default_train_max_length"),
        ge=1,
    )


@dataclass(frozen=True, kw_only=True)
class SpanDataConfig(DataConfig):
    """Configuration keys of spans that are drawn from documents."""

    anchors_per_document: int = config_field(2, "number of anchor spans per document")
    positives_per_anchor: int = config_field(2, "number of positive spans per anchor")
    min_span: int = config_field(32, "minimum length of a span in tokens")
    max_span: int | Literal["auto"] = config_field(
        512, "maximum length of a span in tokens; auto: so that 9 of 10 documents are long enough"
    )
    anchor_placement: AnchorPlacement = config_field(
        "grid", "sampling of span positions: uniform: as in the paper; grid: as in the published code"
    )
    positive_sampling: PositiveSampling = config_field("nearby", "position of positives relative to their anchor")
    align_to_words: bool = config_field(False, "whether spans start and end at word boundaries")
    min_document_length: int | None = config_field(
        None, "minimum length of a document; null: 2 * anchors_per_document * max_span tokens"
    )
    length_unit: LengthUnit = config_field(
        "tokens", "unit of min_document_length; words: whitespace-separated words, as in the published script"
    )
    lowercase: bool = config_field(False, "whether to lowercase texts")
    mlm_probability: float = config_field(0.15, "fraction of the tokens of an anchor that are predicted")
    mask_strategy: MaskStrategy | None = config_field(
        None,
        "replacement of predicted tokens: bert: 80 % are masked, 10 % are replaced at random, 10 % stay; all: all "
        "are masked; null: bert",
    )
    mask_token: str | None = config_field(None, "mask token; null: that of the model", inherits_from="model.mask_token")
    max_length: int = config_field(
        512,
        "maximum length of a sequence in tokens, special tokens included; by default train_max_length, else "
        "the usual length of the model",
        inherits_from=("train_max_length", "default_train_max_length"),
        ge=1,
    )
    prompts: Prompts = config_field(None, "prompt before the spans; null: the default prompt of the backbone; {}: none")
    match_span_count_of: int | None = config_field(
        None, "value of anchors_per_document whose number of spans per batch and epoch is matched; null: none"
    )


@dataclass(frozen=True, kw_only=True)
class DocumentDataConfig(SpanDataConfig, RowDataConfig, FileDataConfig):
    """Configuration of long documents: contrasts spans, or pairs of passages.

    Example:
        >>> from contrastive_encoders import DocumentDataConfig
        >>> DocumentDataConfig(path="documents", max_span=256).positives_per_anchor
        2
    """

    target: str = "contrastive_encoders.datamodules.documents.TextDocuments"

    document: Literal["line", "file"] | None = config_field(
        None, "unit of a document in .txt files; null: line for a file, file for a directory"
    )
    held_out_fraction: float = config_field(
        0.0,
        "fraction of the documents that is kept from training and evaluated as the task held_out",
        inherits_from="held_out_fraction",
    )
    max_held_out_documents: int = config_field(
        100_000,
        "maximum number of texts that the queries of held_out are ranked against; of more texts, a sample is used",
        ge=1,
    )
    prompts: Prompts = config_field(
        None,
        "prompts before the texts of a pair, one for both or a list of two; null: the prompts of the "
        "backbone (for spans, its default prompt); {}: none",
    )


@dataclass(frozen=True, kw_only=True)
class ModuleDataConfig(SpanDataConfig, DocstringDataConfig):
    """Configuration of spans from the docstrings of the installed packages; each module is a document.

    Example:
        >>> from contrastive_encoders import ModuleDataConfig
        >>> ModuleDataConfig(anchors_per_document=1).anchors_per_document
        1
    """

    target: str = "contrastive_encoders.datamodules.documents.PydocsDocuments"


@dataclass(frozen=True, kw_only=True)
class MixtureDataConfig:
    """Configuration of a mixture of several datasets.

    Example:
        >>> from contrastive_encoders import MixtureDataConfig, QuestionDataConfig
        >>> MixtureDataConfig(temperature=2.0).homogeneous
        True
    """

    target: str = "contrastive_encoders.datamodules.mixture.Mixture"

    parts: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "mapping of part names to their keys; all parts share batch_size, backbone, seed, and drop_last"
        },
    )
    weights: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"meaning": "how often each part is drawn, {nli: 2, docs: 1} or data.weights.nli=2; none: by size"},
    )
    temperature: float = config_field(
        1.0,
        "temperature of drawing parts without weights, in proportion to size^(1/temperature): 1 uses every row "
        "once, larger values make parts more equal",
    )
    homogeneous: bool = config_field(
        True,
        "whether each batch comes from one part; false: batches mix rows of all parts, with the same columns",
    )
    batch_size: int = config_field(inherits_from="batch_size", meaning="rows per batch, over all processes", ge=1)
    drop_last: bool = config_field(
        True, "whether to drop the last, smaller batch of a part; false: keep it, as transformers does"
    )
    seed: int = config_field(inherits_from="seed", meaning="seed of the order of the parts")
    num_workers: int = config_field(0, "number of processes that prepare batches", ge=0, le=4096)
    quiet: bool = config_field(inherits_from="quiet", meaning="whether to suppress terminal output")


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
