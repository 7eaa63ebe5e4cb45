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
    "auto: by the name; text: a sentence per line; jsonl, csv, tsv, parquet: the column input_column; stsb: the table "
    "of STS-B, both sentences"
)
COLUMN = "field or column of the texts"
WORKERS = "processes; null: one per core"
PER_LABEL = {"overgenerate": 5, "retry": 2}  # published values


@dataclass(kw_only=True)
class GenerateConfig:
    """Keys of all recipes."""

    recipe: Mapping[str, Any] = config_field(meaning="class of the recipe, its name, and its instructions")
    generator: str | None = config_field(
        None, "hub id or directory of a causal language model, base or instruct; GenSE's recipes: of a GenSE generator"
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "texts to start from: .txt, .jsonl, .json, .csv, .tsv, .parquet, each also as .gz; several, [FILE,FILE]; or a "
        "directory",
    )
    output: str | None = config_field(
        None, "directory of shard-NNNNN.jsonl and manifest.json; first sentences of dino_x1x2 are in its x1/"
    )
    overwrite: bool = config_field(False, "true: delete an existing output")
    quiet: bool = config_field(False, "true: only warnings and errors")
    encoder: str | None = config_field(
        None,
        "directory of a run or of a sentence-transformers or transformers model, checkpoint, or hub id: report.html "
        "then has the similarities of the texts under it",
    )
    annotation_sample: int | None = config_field(
        None,
        "write annotation.csv for a person to label: that many texts, pairs as in training, without their labels",
        ge=1,
    )
    annotation_sheet: str | None = config_field(
        None, "annotation.csv with a person's labels, which are compared with the texts' own (DINO, table 3)"
    )


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Configuration keys of the requests to a server."""

    in_flight: int = config_field(32, "requests at the same time", ge=1)
    timeout: float = config_field(120, "seconds to wait for an answer", gt=0)
    max_retries: int = config_field(
        20, "retries of a request, after up to 8 seconds each; then the command ends, and can be resumed", ge=0
    )
    body: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "further keys of every request: +requests.body.KEY=VALUE, as the server's manual has them; null "
            "removes one of ours"
        },
    )


@dataclass(kw_only=True)
class ModelConfig(GenerateConfig):
    """Keys of a recipe that runs a language model."""

    engine: Literal["local", "openai"] = config_field(
        "local",
        "openai: a server with OpenAI's protocol, such as vLLM, llama.cpp, TGI, or Ollama, at base_url; its key is in "
        "OPENAI_API_KEY",
    )
    base_url: str | None = config_field(
        None,
        "http://HOST:PORT/v1 of engine=openai; generator is then the server's name of the model, and lengths of "
        "sentences are in words",
    )
    requests: Requests = group(Requests, "requests to the server of engine=openai")
    chat_template: bool = config_field(
        False,
        "true: use the model's chat template, for any instruct model: the last line of a prompt begins the answer, the "
        "rest is what the user says",
    )
    revision: str | None = config_field(None, "revision of a hub id")
    precision: Precision = config_field("fp32", "precision of the model")
    device: str = config_field("auto", "auto, cpu, cuda, cuda:1")
    devices: int = config_field(1, "number of processes, with a GPU each if there are any", ge=1)
    cluster: str | None = config_field(
        None,
        "several machines: auto, ray://HOST:PORT, or ray, which starts a Ray cluster here; devices counts its workers",
    )
    num_cpus: float | None = config_field(None, "CPUs that each worker of the cluster reserves", ge=0)
    num_gpus: float | None = config_field(None, "GPUs that each worker of the cluster reserves", ge=0)
    shard_size: int = config_field(1000, "inputs per shard; an interruption loses at most that many per process", ge=1)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Number of samples, and the rules by which they are accepted."""

    strategy: Literal["overgenerate", "retry"] = config_field(
        "overgenerate",
        "overgenerate: draw per_label samples at once, and keep all that pass the filters; retry: draw until per_label "
        "different ones have passed",
    )
    per_label: int | None = config_field(
        None, "second sentences per first sentence and label; null: 5, or 2 with strategy=retry; not for dino_x1", ge=1
    )
    max_tries: int = config_field(5, "maximum number of samples with strategy=retry")
    decay: float = config_field(100, "lambda of self-debiasing; 0: none", ge=0)
    epsilon: float = config_field(0.01, "lower bound of the factors of self-debiasing", ge=0, le=1)
    filters: Filters = group(Filters, "which texts are kept")

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

    spec: str | None = config_field(None, "FILE.yaml or .json: a task of your own in the schema of the published ones")
    input_type: InputType = config_field("auto", INPUT_TYPE)
    input_column: str = config_field("text_a", COLUMN)
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_sample: int | None = config_field(None, "maximum number of texts, drawn at random; null: all")
    num_x1: int = config_field(
        15000, "first sentences to write if the recipe writes them, divided evenly among the labels"
    )
    ban_eos: bool = config_field(
        True, "false: a text may also end at the end-of-sequence token, without a quotation mark"
    )
    samples: Plan = flat_group(Plan)
    how: Decoding = flat_group(Decoding)


@dataclass(kw_only=True)
class RulesConfig(GenerateConfig):
    """Configuration keys of the choice of triplets."""

    rules: Rules = group(Rules, "rules for triplets (GenSE's code); report.html shows how many each rejects")
    workers: int | None = config_field(None, WORKERS)


@dataclass(kw_only=True)
class TripletConfig(ModelConfig, RulesConfig):
    """Configuration keys of a recipe whose candidates are judged by GenSE's generator."""

    prompts: Mapping[str, Any] = config_field(
        meaning="prompts, if the generator's directory has none; prompts=FILE.yaml: your own"
    )
    prompt_assembly: Assembly | None = config_field(
        None, "null: as the generator was trained, or else pieces, as published"
    )
    max_pair_tokens: int = config_field(128, "maximum length of each of the two judged sentences in tokens", ge=1)


@dataclass(kw_only=True)
class SentencesConfig(TripletConfig):
    """Keys of a triplet recipe that reads sentences."""

    input_type: InputType = config_field("auto", INPUT_TYPE)
    input_column: str = config_field("text", COLUMN)
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_kind: Literal["sentences", "documents"] = config_field(
        "sentences", "documents: split into sentences first; a newline also ends a sentence"
    )
    sentences: SentenceRules = group(SentenceRules, "which sentences are used; those without a letter never are")


@dataclass(kw_only=True)
class GenseConfig(SentencesConfig):
    """Keys of GenSE (Chen et al. 2022)."""

    candidates: int = config_field(
        1, "candidates per sentence and direction; of several, the one that the discriminator is surest of", ge=1
    )
    max_source_tokens: int = config_field(
        96, "maximum length of a sentence in the prompt in tokens; the prompt itself is never truncated", ge=1
    )
    how: Decoding = flat_group(Decoding)


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """Keys of BM25; ``k1`` and ``b`` are Lucene's names."""

    top: int = config_field(20, "retrieved sentences per sentence, all of which are judged", ge=1)
    k1: float = config_field(1.5, "saturation of the term frequency", ge=0)
    b: float = config_field(0.75, "length normalization", ge=0, le=1)


@dataclass(kw_only=True)
class RetrievalConfig(SentencesConfig):
    """Keys of the baseline with retrieved sentences."""

    bm25: Bm25 = group(Bm25, "retrieval")
    contradictions: Literal["none", "retrieved"] = config_field(
        "none", "retrieved: triplets, for the sentences with both directions; none: pairs"
    )


@dataclass(frozen=True, kw_only=True)
class Language:
    """Keys of one direction of translation."""

    model: str | None = config_field(
        None, "directory or hub id of a translation model of transformers: Marian, M2M-100, NLLB, mBART, T5"
    )
    prefix: str = config_field(
        "",
        'text in front of every sentence: "translate English to German: " (T5), ">>fra<< " (Marian of several '
        "languages)",
    )
    source: str | None = config_field(
        None,
        "language code of the tokenizer: eng_Latn (NLLB), en (M2M-100), en_XX (mBART); null: the tokenizer has none",
    )
    target: str | None = config_field(None, "likewise, of the translation")


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
    entailment: str | float = config_field("1", "label of the texts that follow; texts of other labels are not used")
    contradiction: str | float = config_field("0", "label of the texts that contradict")

    def by_direction(self) -> dict[Direction, str]:
        return {"entailment": str(self.entailment), "contradiction": str(self.contradiction)}


@dataclass(kw_only=True)
class GenseDinoConfig(TripletConfig):
    """Keys of the baseline with DINO's pairs."""

    labels: Labels = group(Labels, "labels of DINO's pairs")


@dataclass(frozen=True, kw_only=True)
class Windows:
    """How documents are cut into passages, in words."""

    max_words: int = config_field(200, "maximum length, in whole sentences", ge=1)
    overlap: int = config_field(0, "words that the next passage of a section repeats, in whole sentences", ge=0)
    min_words: int = config_field(
        20, "shorter passages are joined to the previous one of the section, or left out if there is none", ge=1
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
    """Which questions are kept; null or false switches a rule off."""

    min_p_yes: float | None = config_field(
        None, "minimum probability by the judge that the passage answers the question", ge=0, le=1
    )
    max_rank: int | None = config_field(20, "maximum rank of the passage among all passages under encoder", ge=1)
    max_copied: float | None = config_field(
        0.8, "maximum share of the words that are in runs of three words of the passage", ge=0, le=1
    )
    max_from_prompt: float | None = config_field(
        0.15, "likewise, of the examples in the prompt, for runs that the passage does not have", ge=0, le=1
    )
    duplicates: bool = config_field(
        True, "true: drop a question that shares 80 % of its words with one that is kept already"
    )
    min_words: int = config_field(2, "minimum number of words", ge=0)
    max_words: int | None = config_field(32, "maximum number of words", ge=1)

    def check_lengths(self) -> None:
        if self.max_words is not None and self.max_words < self.min_words:
            raise InputError(
                key="rules.max_words", value=self.max_words, expected=f"rules.min_words={self.min_words} or more"
            )


@dataclass(kw_only=True)
class QueriesConfig(ModelConfig):
    """Keys of questions for passages of documents."""

    prompts: Mapping[str, Any] = config_field(
        meaning="a template for each style, and the prompt of the judge; prompts=FILE.yaml: your own"
    )
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_column: str = config_field("text", f"{COLUMN}; a column title has the headings")
    on_error: Literal["fail", "skip"] = config_field("fail", "skip: skip rows that cannot be read, and report how many")
    max_skipped: float = config_field(
        0.05,
        "maximum share of rows with on_error=skip that cannot be decoded or are malformed; empty ones do not count",
        ge=0,
        le=1,
    )
    passages: Windows = group(Windows, "how documents are cut into passages")
    held_out_fraction: float = config_field(
        0.2, "share of the documents whose questions are held out, in OUTPUT/held_out as BEIR has them", ge=0, lt=1
    )
    dev_fraction: float = config_field(0.1, "likewise in OUTPUT/dev, to choose learning rates on", ge=0, lt=1)
    queries_per_passage: int = config_field(1, "questions per passage and style", ge=1)
    max_passage_tokens: int = config_field(
        160, "maximum length of a passage in prompts in tokens; with engine=openai in words", ge=1
    )
    use_judge: bool = config_field(
        True, "false: no judge, which saves a third of the time; engine=openai judges only for rules.min_p_yes"
    )
    judge: str | None = config_field(
        None, "another language model, which judges whether a passage answers a question; null: the generator"
    )
    rules: QuestionRules = group(QuestionRules, "which questions are kept")
    negatives: int = config_field(
        3,
        "negatives per training row, near passages of other documents under encoder; rows with fewer are left out",
        ge=0,
    )
    negative_margin: float = config_field(
        0.05, "minimum share by which the cosine of a negative is below that of the passage", ge=0, le=1
    )
    reuse_from: str | None = config_field(
        None, "output of this recipe for some of the documents, whose questions are taken from there"
    )
    estimate_only: bool = config_field(
        False, "true: report the number of passages and questions and the estimated hours, and write nothing"
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
