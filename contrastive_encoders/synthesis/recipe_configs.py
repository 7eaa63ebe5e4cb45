"""Configuration keys of ``contrastive-encoders generate``, a class for each recipe. This module does not import torch.

A recipe of `synthesis.recipes` inherits the keys of its class here. The defaults are those of the DINO recipes; a file
in ``configs/recipe`` chooses the recipe and sets the values that differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from contrastive_encoders.composition.config_store import register
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field, flat_group, group
from contrastive_encoders.core.gense_prompts import Assembly, Direction
from contrastive_encoders.io.text_files import ENCODING_MEANING
from contrastive_encoders.synthesis.decoding.continuations import Decoding
from contrastive_encoders.synthesis.rules.filters import Filters
from contrastive_encoders.synthesis.rules.triplet_rules import Rules
from contrastive_encoders.synthesis.sentences.preparation import SentenceRules

Precision = Literal["fp32", "bf16", "fp16"]
InputType = Literal["auto", "text", "jsonl", "csv", "tsv", "stsb", "parquet"]

INPUT_TYPE = (
    "type of the input files; auto: by the file name; text: a sentence per line; jsonl, csv, tsv, parquet: the column "
    "input_column; stsb: both sentences of a table of STS-B"
)
COLUMN = "column or JSON key that contains the texts"
WORKERS = "number of processes; null: one per core"
PER_LABEL = {"overgenerate": 5, "retry": 2}  # published values


@dataclass(kw_only=True)
class GenerateConfig:
    """Keys of all recipes."""

    recipe: Mapping[str, Any] = config_field(meaning="class of the recipe, its name, and its instructions")
    generator: str | None = config_field(
        None,
        "hub id or directory of a causal language model, base or instruct; for the recipes of GenSE, of a GenSE "
        "generator",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "input texts: a file (.txt, .jsonl, .json, .csv, .tsv, or .parquet, each also as .gz), a list of files "
        "[FILE,FILE], or a directory",
    )
    output: str | None = config_field(
        None,
        "output directory, for shard-NNNNN.jsonl and manifest.json; dino_x1x2 writes the first sentences to its x1/",
    )
    overwrite: bool = config_field(False, "whether to delete an existing output")
    quiet: bool = config_field(False, "whether to log only warnings and errors")
    encoder: str | None = config_field(
        None,
        "encoder that adds the similarities of the texts to report.html: the directory of a run or of a "
        "sentence-transformers or transformers model, a checkpoint, or a hub id",
    )
    annotation_sample: int | None = config_field(
        None,
        "number of texts to write to annotation.csv, which a person labels: pairs as in training, without labels",
        ge=1,
    )
    annotation_sheet: str | None = config_field(
        None, "annotation.csv with a person's labels, to compare them with the labels of the texts (DINO, table 3)"
    )


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Configuration keys of the requests to a server."""

    in_flight: int = config_field(32, "maximum number of simultaneous requests", ge=1)
    timeout: float = config_field(120, "maximum time for a response in seconds", gt=0)
    max_retries: int = config_field(
        20,
        "maximum number of retries of a request, after up to 8 seconds each; then the command fails and can be resumed",
        ge=0,
    )
    body: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "additional keys of every request, as in the server's manual: +requests.body.KEY=VALUE; null "
            "removes a default key"
        },
    )


@dataclass(kw_only=True)
class ModelConfig(GenerateConfig):
    """Keys of a recipe that runs a language model."""

    engine: Literal["local", "openai"] = config_field(
        "local",
        "where the model runs; local: on this machine; openai: on a server with OpenAI's protocol at base_url, such as "
        "vLLM, llama.cpp, TGI, or Ollama, whose key is in OPENAI_API_KEY",
    )
    base_url: str | None = config_field(
        None,
        "URL of the server for engine=openai, http://HOST:PORT/v1; generator is then the server's name of the model, "
        "and lengths of sentences are in words",
    )
    requests: Requests = group(Requests, "requests to the server for engine=openai")
    chat_template: bool = config_field(
        False,
        "whether to use the model's chat template, as instruct models need: the last line of a prompt begins the "
        "answer, and the lines before it are the user's message",
    )
    revision: str | None = config_field(None, "revision of the generator if it is a hub id")
    precision: Precision = config_field("fp32", "floating-point precision of the model")
    device: str = config_field("auto", "device of the model: auto, cpu, cuda, cuda:1")
    devices: int = config_field(1, "number of processes; each uses one GPU if there are GPUs", ge=1)
    cluster: str | None = config_field(
        None,
        "Ray cluster that runs the workers, whose number is devices: auto, ray://HOST:PORT, or ray, which starts a "
        "cluster on this machine",
    )
    num_cpus: float | None = config_field(None, "number of CPUs that each worker of the cluster reserves", ge=0)
    num_gpus: float | None = config_field(None, "number of GPUs that each worker of the cluster reserves", ge=0)
    shard_size: int = config_field(
        1000, "number of inputs per shard; an interruption loses at most that many per process", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Number of samples, and the rules by which they are accepted."""

    strategy: Literal["overgenerate", "retry"] = config_field(
        "overgenerate",
        "sampling strategy; overgenerate: draw per_label samples and keep those that pass the filters; retry: draw "
        "until per_label different samples have passed",
    )
    per_label: int | None = config_field(
        None,
        "number of second sentences per first sentence and label; null: 5, or 2 with strategy=retry; not for dino_x1",
        ge=1,
    )
    max_tries: int = config_field(5, "maximum number of samples with strategy=retry")
    decay: float = config_field(100, "decay constant lambda of self-debiasing; 0: off", ge=0)
    epsilon: float = config_field(0.01, "lower bound of the factors of self-debiasing", ge=0, le=1)
    filters: Filters = group(Filters, "filters of the generated texts")

    @property
    def wanted(self) -> int:
        """Return the number of texts to draw for each input and label."""
        return PER_LABEL[self.strategy] if self.per_label is None else self.per_label

    def check_tries(self) -> None:
        if self.strategy == "retry" and self.max_tries < self.wanted:
            raise InputError(key="max_tries", value=self.max_tries, expected=f"per_label ({self.wanted}) or more")

    def for_first_sentences(self) -> "Plan":
        """Return a plan with one sample per unit, since ``num_x1`` counts the sentences of all labels."""
        return replace(self, per_label=1, max_tries=1 if self.strategy == "overgenerate" else max(self.max_tries, 1))

    def to_json(self) -> dict[str, Any]:
        numbers = {"per_label": self.wanted, "decay": float(self.decay), "epsilon": float(self.epsilon)}
        return {**asdict(self), **numbers}


@dataclass(kw_only=True)
class DinoConfig(ModelConfig):
    """Keys of DINO (Schick and Schütze 2021)."""

    spec: str | None = config_field(None, "FILE.yaml or .json with a custom task in the schema of the published tasks")
    input_type: InputType = config_field("auto", INPUT_TYPE)
    input_column: str = config_field("text_a", COLUMN)
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_sample: int | None = config_field(None, "maximum number of input texts, drawn at random; null: all")
    num_x1: int = config_field(
        15000, "number of first sentences if the recipe writes them, divided evenly among the labels"
    )
    ban_eos: bool = config_field(
        True, "whether only a quotation mark ends a text; false: the end-of-sequence token ends it, too"
    )
    samples: Plan = flat_group(Plan)
    how: Decoding = flat_group(Decoding)


@dataclass(kw_only=True)
class RulesConfig(GenerateConfig):
    """Configuration keys of the selection of triplets."""

    rules: Rules = group(Rules, "rules for triplets, as in GenSE's code; report.html shows how many each rejects")
    workers: int | None = config_field(None, WORKERS)


@dataclass(kw_only=True)
class TripletConfig(ModelConfig, RulesConfig):
    """Configuration keys of a recipe whose candidates are judged by GenSE's generator."""

    prompts: Mapping[str, Any] = config_field(
        meaning="prompts if the generator's directory contains none; prompts=FILE.yaml: custom prompts"
    )
    prompt_assembly: Assembly | None = config_field(
        None,
        "how prompts and sentences are joined, as token ids (pieces) or as text (string); null: as in the training of "
        "the generator, or pieces, as published",
    )
    max_pair_tokens: int = config_field(128, "maximum length of each of the two judged sentences in tokens", ge=1)


@dataclass(kw_only=True)
class SentencesConfig(TripletConfig):
    """Keys of a triplet recipe that reads sentences."""

    input_type: InputType = config_field("auto", INPUT_TYPE)
    input_column: str = config_field("text", COLUMN)
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_kind: Literal["sentences", "documents"] = config_field(
        "sentences",
        "content of the input; documents: split into sentences first, and a newline ends a sentence, too",
    )
    sentences: SentenceRules = group(
        SentenceRules, "rules for the input sentences; sentences without letters are never used"
    )


@dataclass(kw_only=True)
class GenseConfig(SentencesConfig):
    """Keys of GenSE (Chen et al. 2022)."""

    candidates: int = config_field(
        1,
        "number of candidates per sentence and direction, of which the discriminator's most probable one is used",
        ge=1,
    )
    max_source_tokens: int = config_field(
        96, "maximum length of a sentence in the prompt in tokens; the prompt itself is never truncated", ge=1
    )
    how: Decoding = flat_group(Decoding)


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """Keys of BM25; ``k1`` and ``b`` are Lucene's names."""

    top: int = config_field(20, "number of retrieved sentences per sentence, all of which are judged", ge=1)
    k1: float = config_field(1.5, "term-frequency saturation of BM25", ge=0)
    b: float = config_field(0.75, "length normalization of BM25", ge=0, le=1)


@dataclass(kw_only=True)
class RetrievalConfig(SentencesConfig):
    """Keys of the baseline with retrieved sentences."""

    bm25: Bm25 = group(Bm25, "BM25 retrieval")
    contradictions: Literal["none", "retrieved"] = config_field(
        "none",
        "source of contradictions; none: write pairs; retrieved: write triplets for sentences with both directions",
    )


@dataclass(frozen=True, kw_only=True)
class Language:
    """Keys of one direction of translation."""

    model: str | None = config_field(
        None, "directory or hub id of a translation model of transformers: Marian, M2M-100, NLLB, mBART, or T5"
    )
    prefix: str = config_field(
        "",
        'prefix of every sentence, such as "translate English to German: " (T5) or ">>fra<< " (multilingual Marian)',
    )
    source: str | None = config_field(
        None,
        "tokenizer's code of the source language, such as eng_Latn (NLLB), en (M2M-100), or en_XX (mBART); null: the "
        "tokenizer has no codes",
    )
    target: str | None = config_field(None, "tokenizer's code of the target language; null: the tokenizer has no codes")


@dataclass(frozen=True, kw_only=True)
class Search:
    """Keys of beam search."""

    beams: int = config_field(5, "number of beams", ge=1)
    max_tokens: int = config_field(
        128, "maximum length in tokens of a sentence, which is truncated, and of its translation", ge=1
    )


@dataclass(kw_only=True)
class BackTranslationConfig(SentencesConfig):
    """Keys of the baseline with translated sentences."""

    forward: Language = group(Language, "translation into the other language")
    backward: Language = group(Language, "translation back")
    search: Search = group(Search, "beam search of both models")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels of DINO's pairs that give the texts of a triplet."""

    # 0.5 on a command line is a number
    entailment: str | float = config_field(
        "1", "label of the texts that become entailments; texts of other labels are not used"
    )
    contradiction: str | float = config_field("0", "label of the texts that become contradictions")

    def by_direction(self) -> dict[Direction, str]:
        return {"entailment": str(self.entailment), "contradiction": str(self.contradiction)}


@dataclass(kw_only=True)
class GenseDinoConfig(TripletConfig):
    """Keys of the baseline with DINO's pairs."""

    labels: Labels = group(Labels, "labels of DINO's pairs that become entailments and contradictions")


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Lengths of the passages into which documents are split, in words."""

    max_words: int = config_field(200, "maximum number of words of a passage, which consists of full sentences", ge=1)
    overlap: int = config_field(
        0, "number of words, in full sentences, that the next passage of a section repeats", ge=0
    )
    min_words: int = config_field(
        20,
        "minimum number of words of a passage; a shorter one is joined to the previous passage of its section, or left "
        "out if there is none",
        ge=1,
    )

    def check_lengths(self) -> None:
        if 2 * self.overlap > self.max_words or self.min_words > self.max_words:
            raise InputError(
                key="passages.max_words",
                value=self.max_words,
                expected=f"at least twice passages.overlap={self.overlap}, and at least "
                f"passages.min_words={self.min_words}",
            )


@dataclass(frozen=True, kw_only=True)
class QuestionRules:
    """Rules for the questions to keep; null or false disables a rule."""

    min_p_yes: float | None = config_field(
        None, "minimum probability by the judge that the passage answers the question", ge=0, le=1
    )
    max_rank: int | None = config_field(20, "maximum rank of the passage among all passages under encoder", ge=1)
    max_copied: float | None = config_field(
        0.8, "maximum fraction of the words that are in runs of three words of the passage", ge=0, le=1
    )
    max_from_prompt: float | None = config_field(
        0.15,
        "maximum fraction of the words that are in runs of three words of the prompt's examples but not of the passage",
        ge=0,
        le=1,
    )
    duplicates: bool = config_field(
        True, "whether to drop a question that shares 80% of its words with an earlier kept question"
    )
    min_words: int = config_field(2, "minimum number of words of a question", ge=0)
    max_words: int | None = config_field(32, "maximum number of words of a question", ge=1)

    def check_lengths(self) -> None:
        if self.max_words is not None and self.max_words < self.min_words:
            raise InputError(
                key="rules.max_words", value=self.max_words, expected=f"rules.min_words={self.min_words} or more"
            )


@dataclass(kw_only=True)
class QueriesConfig(ModelConfig):
    """Keys of questions for passages of documents."""

    prompts: Mapping[str, Any] = config_field(
        meaning="template for each style, and the prompt of the judge; prompts=FILE.yaml: custom prompts"
    )
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_column: str = config_field("text", f"{COLUMN}; the column title contains the headings")
    on_error: Literal["fail", "skip"] = config_field(
        "fail", "reaction to rows that cannot be read; fail: stop; skip: skip them and report their number"
    )
    max_skipped: float = config_field(
        0.05,
        "maximum fraction of undecodable or malformed rows with on_error=skip; empty rows do not count",
        ge=0,
        le=1,
    )
    passages: Windows = group(Windows, "lengths of the passages into which documents are split")
    held_out_fraction: float = config_field(
        0.2,
        "fraction of the documents whose questions are held out; OUTPUT/held_out contains them in BEIR's layout",
        ge=0,
        lt=1,
    )
    dev_fraction: float = config_field(
        0.1,
        "fraction of the documents for development, such as the choice of a learning rate; OUTPUT/dev contains their "
        "questions",
        ge=0,
        lt=1,
    )
    queries_per_passage: int = config_field(1, "number of questions per passage and style", ge=1)
    max_passage_tokens: int = config_field(
        160, "maximum length of a passage in a prompt, in tokens, or in words with engine=openai", ge=1
    )
    use_judge: bool = config_field(
        True,
        "whether to judge questions, which takes a third of the time; engine=openai judges only for rules.min_p_yes",
    )
    judge: str | None = config_field(
        None, "language model that judges whether a passage answers a question; null: the generator"
    )
    rules: QuestionRules = group(QuestionRules, "rules for the questions to keep")
    negatives: int = config_field(
        3,
        "number of hard negatives per training row, which are the nearest passages of other documents under encoder; "
        "rows with fewer are left out",
        ge=0,
    )
    negative_margin: float = config_field(
        0.05,
        "minimum relative margin by which the cosine similarity of a negative is below that of the passage",
        ge=0,
        le=1,
    )
    reuse_from: str | None = config_field(
        None, "earlier output of this recipe, whose questions are reused for the documents that both contain"
    )
    estimate_only: bool = config_field(
        False,
        "whether to only report the number of passages and questions and the estimated time, without writing files",
    )
    how: Decoding = flat_group(Decoding)


register("generate", GenerateConfig)
for _name, _kind in {
    "dino": DinoConfig,
    "gense": GenseConfig,
    "gense_back_translation": BackTranslationConfig,
    "gense_dino": GenseDinoConfig,
    "gense_filter": RulesConfig,
    "gense_retrieval": RetrievalConfig,
    "queries": QueriesConfig,
}.items():
    register(f"recipe/{_name}", _kind)
