"""Settings of the data modules: every key of ``data``, with its type, default, bounds and meaning.

A module is made from a value of its class of settings; ``target`` names the module. None of these imports torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.core.config_schema import UNSET, config_field

Prompts = str | Sequence[str] | Mapping[str, str] | None
Window = Literal["grid", "uniform"]
Positive = Literal["nearby", "adjacent", "subsuming"]
MaskHow = Literal["bert", "all"]
OnError = Literal["fail", "skip"]
LengthUnit = Literal["tokens", "words"]
Assembly = Literal["pieces", "string"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Keys of every kind of data but a mixture."""

    target: str = ""  # of the class that is made from them

    tokenizer: str = config_field(inherits_from="backbone", meaning="hub id or folder of the tokenizer")
    append_end: bool | None = config_field(
        None, "an end of sequence behind every text; null: as the model has it", inherits_from="model.append_end"
    )
    batch_size: int = config_field(inherits_from="batch_size", meaning="examples, over all processes", ge=1)
    drop_last: bool = config_field(True, "false: the last batch of an epoch may be smaller, as in transformers")
    seed: int = config_field(
        inherits_from="seed", meaning="of the order of the examples, and of all that is drawn for them"
    )
    fraction: float = config_field(1.0, "of the examples; 0.1 lies inside 0.2", gt=0, le=1)
    cache_dir: str | None = config_field(
        None, "of the stored ids; null: CONTRASTIVE_ENCODERS_CACHE or ~/.cache/contrastive-encoders"
    )
    num_workers: int = config_field(0, "processes that make batches", ge=0, le=4096)
    tokenizer_workers: int = config_field(
        1, "processes that tokenise into that store; 1: the tokenizer's own threads", ge=1, le=4096
    )
    verify: bool = config_field(
        inherits_from="verify", meaning="true: read the whole token store and compare it with its sha256 first"
    )
    quiet: bool = config_field(inherits_from="quiet", meaning="true: nothing on the terminal")


@dataclass(frozen=True, kw_only=True)
class FileDataConfig(DataConfig):
    """Data that are read from files or from a data set of the Hugging Face hub."""

    path: str | Sequence[str] = config_field(
        UNSET,
        "a file, a folder, a pattern, an address (s3://, gs://, hf://, https://), a data set of the hub "
        "(OWNER/NAME), or several",
    )
    columns: Sequence[str] | None = config_field(
        None,
        "names of the columns of the texts, in that order, where the file has others; inside of another: OUTER.INNER",
    )
    split: str = config_field("train", 'taken where a row has a "split"')
    on_error: OnError = config_field("fail", "skip: go on without rows that cannot be read, and count them")
    max_skipped: float = config_field(
        0.05,
        "with on_error=skip: the largest share of rows that may be undecodable or malformed; empty ones do not count",
        ge=0,
        le=1,
    )
    encoding: str | None = config_field(
        None,
        "of text files without a byte-order mark, such as latin-1 or gb18030; null: UTF-8, or cp1252 if a file is not "
        "UTF-8",
    )
    strip_html: bool = config_field(
        False, "true: texts in rows lose their HTML tags, and entities such as &amp; are decoded"
    )
    name: str | None = config_field(None, "of a data set of the hub (data.path=OWNER/NAME): its config")
    revision: str | None = config_field(None, "of that set: a branch, a tag or a commit; null: main, as it is now")
    data_files: str | Sequence[str] | None = config_field(
        None, "of that set: which files, as a pattern; null: as it says itself"
    )
    streaming: bool | None = config_field(
        None, "of that set: true keeps no copy on the disk; null: where the split has 10 GB or more"
    )


@dataclass(frozen=True, kw_only=True)
class TextDataConfig(DataConfig):
    """Data whose rows are texts that are used whole, up to a length."""

    max_length: int | None = config_field(
        128,
        "tokens that a text is cut at, special tokens included; by itself training_length, else that of the "
        "model; null: what holds 99 % of the texts whole, up to what the backbone reads",
        inherits_from=("training_length", "usual_length"),
        ge=1,
    )
    prompts: Prompts = config_field(
        None,
        "in front of the texts: one for all, a list with one for each column, or by the names of the columns, as "
        "{anchor: 'query: ', positive: 'passage: '}; null: the backbone's own, of queries and documents or its default "
        "one; {}: none",
    )


@dataclass(frozen=True, kw_only=True)
class SentenceDataConfig(TextDataConfig, FileDataConfig):
    """Configuration of single sentences or other short texts.

    Example:
        >>> from contrastive_encoders import SentenceDataConfig
        >>> SentenceDataConfig(path="sentences.txt").path
        'sentences.txt'
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.Sentences"

    deletion: float | None = config_field(
        None,
        "share of the words that are taken out of a second copy, for model=tsdae; null: no copy",
        inherits_from="deletion",
    )
    joined: int | None = config_field(
        None,
        "every other n texts become one, so that an encoder that will read long texts meets some; null: none",
        ge=2,
    )


@dataclass(frozen=True, kw_only=True)
class NLIDataConfig(TextDataConfig, FileDataConfig):
    """Configuration of pairs of premise and hypothesis with their relation (NLI).

    Example:
        >>> from contrastive_encoders import NLIDataConfig
        >>> NLIDataConfig(path="nli.jsonl").path
        'nli.jsonl'
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.NLIPairs"


@dataclass(frozen=True, kw_only=True)
class TripletDataConfig(TextDataConfig, FileDataConfig):
    """Configuration of anchors with a positive and optional hard negatives.

    Example:
        >>> from contrastive_encoders import TripletDataConfig
        >>> TripletDataConfig(path="triplets.jsonl", fraction=0.5).fraction
        0.5
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.Triplets"

    held_out_share: float = config_field(
        0.0, "of the rows: kept from training and scored as the task held_out", inherits_from="held_out_share"
    )
    max_held_out_documents: int = config_field(
        100_000, "texts of the data that the queries of held_out are ranked among; above, a sample of them", ge=1
    )
    neighbours: int | None = config_field(
        None,
        "rows whose first texts the encoder at the start finds near each other stand in a batch in groups of so many, "
        "or an eighth of the batch where that is less; null: at random",
        inherits_from="neighbours",
        ge=2,
    )
    max_length: int | None = config_field(
        None,
        "tokens that a text is cut at, special tokens included; by itself training_length; null: what holds "
        "99 % of the texts whole, up to what the backbone reads",
        inherits_from="training_length",
        ge=1,
    )


@dataclass(frozen=True, kw_only=True)
class ScoredTripletDataConfig(TextDataConfig, FileDataConfig):
    """Configuration of anchors with a positive, hard negatives, and a score of a teacher for each.

    Example:
        >>> from contrastive_encoders import ScoredTripletDataConfig
        >>> ScoredTripletDataConfig(path="scored.jsonl").path
        'scored.jsonl'
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.ScoredTriplets"


@dataclass(frozen=True, kw_only=True)
class QuestionDataConfig(TripletDataConfig):
    """Configuration of pairs of question and answer.

    Example:
        >>> from contrastive_encoders import QuestionDataConfig
        >>> QuestionDataConfig(path="faq.csv", columns=("question", "answer")).columns
        ('question', 'answer')
    """

    target: str = "contrastive_encoders.datamodules.row_datamodules.QuestionAnswers"


@dataclass(frozen=True, kw_only=True)
class ScoredPairDataConfig(TextDataConfig, FileDataConfig):
    """Configuration of pairs of texts with a score of their similarity.

    Example:
        >>> from contrastive_encoders import ScoredPairDataConfig
        >>> ScoredPairDataConfig(path="pairs.csv").postprocess
        'auto'
    """

    target: str = "contrastive_encoders.datamodules.scored_pairs.ScoredPairs"

    postprocess: Literal["auto", "on", "off"] = config_field(
        "auto",
        "auto: on if and only if a generator wrote the pairs: text_a, text_b and labels as strings, or its manifest",
    )
    steps: Sequence[str] = config_field(
        ("shuffle", "deduplicate", "drop_identical", "smooth", "cap", "augment"),
        "of the post-processing, in this order",
    )
    normalise: bool = config_field(False, "drop_identical: compare x1 with x2 without outer blanks and case")
    smoothing: float = config_field(0.2, "smooth: labels 0, 0.5, 1 become 0.1, 0.5, 0.9; 0: none")
    cap: int = config_field(2, "pairs per x1 and label; 0: no limit")
    random_pairs: int = config_field(2, "augment: so many x2 of random entries per x1, label 0; 0: none")
    variant: Literal["paper", "published"] = config_field(
        "paper", "published: random x2 of all entries; paper: of those with another x1"
    )
    postprocess_seed: int = config_field(42, "of the post-processing")
    dev_share: float = config_field(
        0.1,
        "held out as the task dino-dev, unless rows have split=valid: those then, as they are",
        ge=0,
        lt=1,
    )
    split_by: Literal["pair", "x1"] = config_field(
        "pair", "pair: by label value, as published; x1: no x1 on both sides"
    )


@dataclass(frozen=True, kw_only=True)
class GenerationDataConfig(FileDataConfig):
    """Configuration of NLI triplets from which a generator learns to write and to judge hypotheses.

    Example:
        >>> from contrastive_encoders import GenerationDataConfig
        >>> GenerationDataConfig(path="triplets.jsonl").target_length
        48
    """

    target: str = "contrastive_encoders.datamodules.nli_generation.NLIGeneration"

    prompts: dict[str, Any] = config_field(inherits_from="prompts", meaning="of the generator")
    prompt_assembly: Assembly = config_field(
        inherits_from="prompt_assembly", meaning="how prompt and sentences are joined"
    )
    source_length: int = config_field(96, "tokens of each sentence, before the prompt is added", ge=2)
    target_length: int = config_field(48, "tokens of what is to be written, its end included", ge=2)
    dev_path: str | None = config_field(None, "triplets to score on; null: the rows with split=dev_split")
    dev_split: str = config_field(
        "valid", 'taken where a row has a "split", and where none has this one: a share of the premises'
    )
    dev_fraction: float = config_field(0.02, "that share", gt=0, lt=1)
    dev_rows: int | None = config_field(None, "no more triplets than these, to score quickly; null: all", ge=1)


@dataclass(frozen=True, kw_only=True)
class DocstringDataConfig(DataConfig):
    """The documentation of the installed Python packages."""

    held_out_every: int = config_field(10, 'of so many modules one is kept for the retrieval task "pydocs"; 0: none')
    held_out_part: int = config_field(0, "which of them: choose settings on another part than the one you report")
    min_words: int = config_field(1024, "of the docstrings of a module")


@dataclass(frozen=True, kw_only=True)
class DocstringPairDataConfig(TextDataConfig, DocstringDataConfig):
    """Configuration of pairs of summary line and body, from the docstrings of the installed packages.

    Example:
        >>> from contrastive_encoders import DocstringPairDataConfig
        >>> DocstringPairDataConfig(max_length=64).max_length
        64
    """

    target: str = "contrastive_encoders.datamodules.pydocs_pairs.PydocsPairs"

    max_length: int | None = config_field(
        96,
        "tokens that a text is cut at, special tokens included; by itself training_length, else that of the "
        "model; null: what holds 99 % of the texts whole",
        inherits_from=("training_length", "usual_length"),
        ge=1,
    )


@dataclass(frozen=True, kw_only=True)
class SpanDataConfig(DataConfig):
    """Settings by which spans are drawn from documents."""

    anchors_per_document: int = config_field(2, "spans that are anchors")
    positives_per_anchor: int = config_field(2, "spans that belong to each")
    min_span: int = config_field(32, "tokens")
    max_span: int | Literal["auto"] = config_field(512, "tokens; auto: so that 9 of 10 documents are long enough")
    window: Window = config_field("grid", "uniform: the paper's text; grid: the published code")
    positive: Positive = config_field("nearby", "where positives lie: nearby, adjacent or subsuming")
    align_to_words: bool = config_field(False, "true: no span splits a word")
    min_document_length: int | None = config_field(None, "null: 2 * anchors_per_document * max_span tokens")
    length_unit: LengthUnit = config_field(
        "tokens", "words: more than so many whitespace words, the rule of the published script"
    )
    lowercase: bool = config_field(False, "true: texts are lower-cased first")
    mlm_probability: float = config_field(0.15, "share of the tokens of an anchor that are predicted")
    mask_how: MaskHow | None = config_field(
        None, "bert: 80 % become the mask, 10 % any token, 10 % stay; all: the mask; null: bert"
    )
    mask_token: str | None = config_field(None, "null: as the model has it", inherits_from="model.mask_token")
    max_length: int = config_field(
        512,
        "tokens of a sequence, special tokens included; by itself training_length, else that of the model",
        inherits_from=("training_length", "usual_length"),
        ge=1,
    )
    prompts: Prompts = config_field(None, "null: the backbone's default prompt in front of the spans; {}: none")
    equalise_spans_to: int | None = config_field(
        None, "2: anchors_per_document=1 sees as many spans per batch and epoch as 2 does"
    )


@dataclass(frozen=True, kw_only=True)
class DocumentDataConfig(SpanDataConfig, TextDataConfig, FileDataConfig):
    """Configuration of long documents: spans of them, or pairs of passages.

    Example:
        >>> from contrastive_encoders import DocumentDataConfig
        >>> DocumentDataConfig(path="documents", max_span=256).positives_per_anchor
        2
    """

    target: str = "contrastive_encoders.datamodules.documents.TextDocuments"

    document: Literal["line", "file"] | None = config_field(
        None, "what is a document of a .txt; null: lines of a file, files of a folder"
    )
    held_out_share: float = config_field(
        0.0, "of the documents: kept from training and scored as the task held_out", inherits_from="held_out_share"
    )
    max_held_out_documents: int = config_field(
        100_000, "texts of the data that the queries of held_out are ranked among; above, a sample of them", ge=1
    )
    prompts: Prompts = config_field(
        None,
        "of pairs: in front of the texts, one for both or a list of two; null: the backbone's own, of spans its "
        "default one; {}: none",
    )


@dataclass(frozen=True, kw_only=True)
class ModuleDataConfig(SpanDataConfig, DocstringDataConfig):
    """Configuration of spans of the docstrings of the installed packages; a module is a document.

    Example:
        >>> from contrastive_encoders import ModuleDataConfig
        >>> ModuleDataConfig(anchors_per_document=1).anchors_per_document
        1
    """

    target: str = "contrastive_encoders.datamodules.documents.PydocsDocuments"


@dataclass(frozen=True, kw_only=True)
class MixtureDataConfig:
    """Configuration of a mixture of several data sets.

    Example:
        >>> from contrastive_encoders import MixtureDataConfig, QuestionDataConfig
        >>> MixtureDataConfig(temperature=2.0).homogeneous
        True
    """

    target: str = "contrastive_encoders.datamodules.mixture.Mixture"

    parts: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "name -> its keys; they share batch_size, backbone, seed and what an epoch's last batch is"
        },
    )
    weights: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"meaning": "{nli: 2, docs: 1}, or data.weights.nli=2: how often a part is drawn; none: by its size"},
    )
    temperature: float = config_field(
        1.0,
        "without weights it is size^(1/temperature): 1 takes every row once, larger numbers make parts more alike",
    )
    homogeneous: bool = config_field(
        True, "each batch is of one part; false: rows of all parts in each, which must have the same columns"
    )
    batch_size: int = config_field(inherits_from="batch_size", meaning="rows, over all processes", ge=1)
    drop_last: bool = config_field(True, "false: the last batch of a part may be smaller, as in transformers")
    seed: int = config_field(inherits_from="seed", meaning="of the order of the parts")
    num_workers: int = config_field(0, "processes that make batches", ge=0, le=4096)
    quiet: bool = config_field(inherits_from="quiet", meaning="true: nothing on the terminal")


KINDS: Mapping[str, type[Any]] = {  # name of ``data=NAME`` -> its settings
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
