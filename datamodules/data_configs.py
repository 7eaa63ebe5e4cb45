"""Settings of the data modules: every key of ``data``, with its type, default, bounds and meaning.

A module is made from a value of its class of settings; ``target`` names the module. None of these imports torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from contrastive_encoders.core.config_schema import key

Prompts = str | Sequence[str] | Mapping[str, str] | None
Window = Literal["grid", "uniform"]
Positive = Literal["nearby", "adjacent", "subsuming"]
MaskHow = Literal["bert", "all"]
OnError = Literal["fail", "skip"]
LengthUnit = Literal["tokens", "words"]
Assembly = Literal["pieces", "string"]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Keys of every kind of data but a mixture."""

    target: str = ""  # of the class that is made from them

    tokenizer: str = key(of="backbone", meaning="hub id or folder of the tokenizer")
    append_end: bool | None = key(
        None, "an end of sequence behind every text; null: as the model has it", of="model.append_end"
    )
    batch_size: int = key(of="batch_size", meaning="examples, over all processes", least=1)
    drop_last: bool = key(True, "false: the last batch of an epoch may be smaller, as in transformers")
    seed: int = key(of="seed", meaning="of the order of the examples, and of all that is drawn for them")
    fraction: float = key(1.0, "of the examples; 0.1 lies inside 0.2", above=0, most=1)
    cache_dir: str | None = key(
        None, "of the stored ids; null: CONTRASTIVE_ENCODERS_CACHE or ~/.cache/contrastive-encoders"
    )
    num_workers: int = key(0, "processes that make batches", least=0, most=4096)
    tokenizer_workers: int = key(
        1, "processes that tokenise into that store; 1: the tokenizer's own threads", least=1, most=4096
    )
    verify: bool = key(of="verify", meaning="true: read the whole token store and compare it with its sha256 first")
    quiet: bool = key(of="quiet", meaning="true: nothing on the terminal")


@dataclass(frozen=True, kw_only=True)
class FileData(Data):
    """Data that are read from files or from a data set of the Hugging Face hub."""

    path: str | Sequence[str] = key(
        meaning="a file, a folder, a pattern, an address (s3://, gs://, hf://, https://), a data set of the hub "
        "(OWNER/NAME), or several"
    )
    columns: Sequence[str] | None = key(
        None,
        "names of the columns of the texts, in that order, where the file has others; inside of another: OUTER.INNER",
    )
    split: str = key("train", 'taken where a row has a "split"')
    on_error: OnError = key("fail", "skip: go on without rows that cannot be read, and count them")
    max_skipped: float = key(
        0.05,
        "with on_error=skip: the largest share of rows that may be undecodable or malformed; empty ones do not count",
        least=0,
        most=1,
    )
    encoding: str | None = key(
        None,
        "of text files without a byte-order mark, such as latin-1 or gb18030; null: UTF-8, or cp1252 if a file is not "
        "UTF-8",
    )
    strip_html: bool = key(False, "true: texts in rows lose their HTML tags, and entities such as &amp; are decoded")
    name: str | None = key(None, "of a data set of the hub (data.path=OWNER/NAME): its config")
    revision: str | None = key(None, "of that set: a branch, a tag or a commit; null: main, as it is now")
    data_files: str | Sequence[str] | None = key(
        None, "of that set: which files, as a pattern; null: as it says itself"
    )
    streaming: bool | None = key(
        None, "of that set: true keeps no copy on the disk; null: where the split has 10 GB or more"
    )


@dataclass(frozen=True, kw_only=True)
class TextsData(Data):
    """Data whose rows are texts that are used whole, up to a length."""

    max_length: int | None = key(
        128,
        "tokens that a text is cut at, special tokens included; by itself training_length, else that of the "
        "model; null: what holds 99 % of the texts whole, up to what the backbone reads",
        of=("training_length", "usual_length"),
        least=1,
    )
    prompts: Prompts = key(
        None,
        "in front of the texts: one for all, a list with one for each column, or by the names of the columns, as "
        "{anchor: 'query: ', positive: 'passage: '}; null: the backbone's own, of queries and documents or its default "
        "one; {}: none",
    )


@dataclass(frozen=True, kw_only=True)
class SentenceData(TextsData, FileData):
    """Single sentences or other short texts."""

    target: str = "contrastive_encoders.datamodules.row_datamodules.Sentences"

    deletion: float | None = key(
        None,
        "share of the words that are taken out of a second copy, for model=tsdae; null: no copy",
        of="deletion",
    )
    joined: int | None = key(
        None,
        "every other n texts become one, so that an encoder that will read long texts meets some; null: none",
        least=2,
    )


@dataclass(frozen=True, kw_only=True)
class NLIData(TextsData, FileData):
    """Pairs of premise and hypothesis with their relation (NLI)."""

    target: str = "contrastive_encoders.datamodules.row_datamodules.NLIPairs"


@dataclass(frozen=True, kw_only=True)
class TripletData(TextsData, FileData):
    """Anchors with a positive and, where there are any, hard negatives."""

    target: str = "contrastive_encoders.datamodules.row_datamodules.Triplets"

    held_out_share: float = key(
        0.0, "of the rows: kept from training and scored as the task held_out", of="held_out_share"
    )
    max_held_out_documents: int = key(
        100_000, "texts of the data that the queries of held_out are ranked among; above, a sample of them", least=1
    )
    neighbours: int | None = key(
        None,
        "rows whose first texts the encoder at the start finds near each other stand in a batch in groups of so many, "
        "or an eighth of the batch where that is less; null: at random",
        of="neighbours",
        least=2,
    )
    max_length: int | None = key(
        None,
        "tokens that a text is cut at, special tokens included; by itself training_length; null: what holds "
        "99 % of the texts whole, up to what the backbone reads",
        of="training_length",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class ScoredTripletData(TextsData, FileData):
    """Anchors with a positive, hard negatives and a teacher's score of each."""

    target: str = "contrastive_encoders.datamodules.row_datamodules.ScoredTriplets"


@dataclass(frozen=True, kw_only=True)
class QuestionData(TripletData):
    """Pairs of question and answer."""

    target: str = "contrastive_encoders.datamodules.row_datamodules.QuestionAnswers"


@dataclass(frozen=True, kw_only=True)
class ScoredPairData(TextsData, FileData):
    """Pairs of texts with a score of their similarity."""

    target: str = "contrastive_encoders.datamodules.scored_pairs.ScoredPairs"

    postprocess: Literal["auto", "on", "off"] = key(
        "auto",
        "auto: on if and only if a generator wrote the pairs: text_a, text_b and labels as strings, or its manifest",
    )
    steps: Sequence[str] = key(
        ("shuffle", "deduplicate", "drop_identical", "smooth", "cap", "augment"),
        "of the post-processing, in this order",
    )
    normalise: bool = key(False, "drop_identical: compare x1 with x2 without outer blanks and case")
    smoothing: float = key(0.2, "smooth: labels 0, 0.5, 1 become 0.1, 0.5, 0.9; 0: none")
    cap: int = key(2, "pairs per x1 and label; 0: no limit")
    random_pairs: int = key(2, "augment: so many x2 of random entries per x1, label 0; 0: none")
    variant: Literal["paper", "published"] = key(
        "paper", "published: random x2 of all entries; paper: of those with another x1"
    )
    postprocess_seed: int = key(42, "of the post-processing")
    dev_share: float = key(
        0.1,
        "held out as the task dino-dev, unless rows have split=valid: those then, as they are",
        least=0,
        below=1,
    )
    split_by: Literal["pair", "x1"] = key("pair", "pair: by label value, as published; x1: no x1 on both sides")


@dataclass(frozen=True, kw_only=True)
class GenerationData(FileData):
    """NLI triplets from which a generator learns to write and to judge hypotheses."""

    target: str = "contrastive_encoders.datamodules.nli_generation.NLIGeneration"

    prompts: dict[str, Any] = key(of="prompts", meaning="of the generator")
    prompt_assembly: Assembly = key(of="prompt_assembly", meaning="how prompt and sentences are joined")
    source_length: int = key(96, "tokens of each sentence, before the prompt is added", least=2)
    target_length: int = key(48, "tokens of what is to be written, its end included", least=2)
    dev_path: str | None = key(None, "triplets to score on; null: the rows with split=dev_split")
    dev_split: str = key(
        "valid", 'taken where a row has a "split", and where none has this one: a share of the premises'
    )
    dev_fraction: float = key(0.02, "that share", above=0, below=1)
    dev_rows: int | None = key(None, "no more triplets than these, to score quickly; null: all", least=1)


@dataclass(frozen=True, kw_only=True)
class DocstringData(Data):
    """The documentation of the installed Python packages."""

    held_out_every: int = key(10, 'of so many modules one is kept for the retrieval task "pydocs"; 0: none')
    held_out_part: int = key(0, "which of them: choose settings on another part than the one you report")
    min_words: int = key(1024, "of the docstrings of a module")


@dataclass(frozen=True, kw_only=True)
class DocstringPairData(TextsData, DocstringData):
    """Pairs of the summary line and the rest of each docstring."""

    target: str = "contrastive_encoders.datamodules.pydocs_pairs.PydocsPairs"

    max_length: int | None = key(
        96,
        "tokens that a text is cut at, special tokens included; by itself training_length, else that of the "
        "model; null: what holds 99 % of the texts whole",
        of=("training_length", "usual_length"),
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class SpanData(Data):
    """Settings by which spans are drawn from documents."""

    anchors_per_document: int = key(2, "spans that are anchors")
    positives_per_anchor: int = key(2, "spans that belong to each")
    min_span: int = key(32, "tokens")
    max_span: int | Literal["auto"] = key(512, "tokens; auto: so that 9 of 10 documents are long enough")
    window: Window = key("grid", "uniform: the paper's text; grid: the published code")
    positive: Positive = key("nearby", "where positives lie: nearby, adjacent or subsuming")
    align_to_words: bool = key(False, "true: no span splits a word")
    min_document_length: int | None = key(None, "null: 2 * anchors_per_document * max_span tokens")
    length_unit: LengthUnit = key(
        "tokens", "words: more than so many whitespace words, the rule of the published script"
    )
    lowercase: bool = key(False, "true: texts are lower-cased first")
    mlm_probability: float = key(0.15, "share of the tokens of an anchor that are predicted")
    mask_how: MaskHow | None = key(
        None, "bert: 80 % become the mask, 10 % any token, 10 % stay; all: the mask; null: bert"
    )
    mask_token: str | None = key(None, "null: as the model has it", of="model.mask_token")
    max_length: int = key(
        512,
        "tokens of a sequence, special tokens included; by itself training_length, else that of the model",
        of=("training_length", "usual_length"),
        least=1,
    )
    prompts: Prompts = key(None, "null: the backbone's default prompt in front of the spans; {}: none")
    equalise_spans_to: int | None = key(
        None, "2: anchors_per_document=1 sees as many spans per batch and epoch as 2 does"
    )


@dataclass(frozen=True, kw_only=True)
class DocumentData(SpanData, TextsData, FileData):
    """Spans of the user's own documents, or pairs of passages of them."""

    target: str = "contrastive_encoders.datamodules.documents.TextDocuments"

    document: Literal["line", "file"] | None = key(
        None, "what is a document of a .txt; null: lines of a file, files of a folder"
    )
    held_out_share: float = key(
        0.0, "of the documents: kept from training and scored as the task held_out", of="held_out_share"
    )
    max_held_out_documents: int = key(
        100_000, "texts of the data that the queries of held_out are ranked among; above, a sample of them", least=1
    )
    prompts: Prompts = key(
        None,
        "of pairs: in front of the texts, one for both or a list of two; null: the backbone's own, of spans its "
        "default one; {}: none",
    )


@dataclass(frozen=True, kw_only=True)
class ModuleData(SpanData, DocstringData):
    """Spans of the docstrings of the installed Python packages, a document for each module."""

    target: str = "contrastive_encoders.datamodules.documents.PydocsDocuments"


@dataclass(frozen=True, kw_only=True)
class MixtureData:
    """A mixture of several data sets."""

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
    temperature: float = key(
        1.0,
        "without weights it is size^(1/temperature): 1 takes every row once, larger numbers make parts more alike",
    )
    homogeneous: bool = key(
        True, "each batch is of one part; false: rows of all parts in each, which must have the same columns"
    )
    batch_size: int = key(of="batch_size", meaning="rows, over all processes", least=1)
    drop_last: bool = key(True, "false: the last batch of a part may be smaller, as in transformers")
    seed: int = key(of="seed", meaning="of the order of the parts")
    num_workers: int = key(0, "processes that make batches", least=0, most=4096)
    quiet: bool = key(of="quiet", meaning="true: nothing on the terminal")


KINDS: Mapping[str, type[Any]] = {  # name of ``data=NAME`` -> its settings
    "dino": ScoredPairData,
    "mixture": MixtureData,
    "nli": NLIData,
    "nli_generation": GenerationData,
    "pydocs": ModuleData,
    "pydocs_pairs": DocstringPairData,
    "qa": QuestionData,
    "scored_triplets": ScoredTripletData,
    "sentences": SentenceData,
    "text": DocumentData,
    "triplets": TripletData,
}
