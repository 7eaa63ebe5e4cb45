"""Configuration keys of ``contrastive-encoders generate``, a class for each recipe. This module does not import torch.

A recipe of `synthesis.recipes` inherits the keys of its class here. The defaults are those of the DINO recipes; a file
in ``configs/recipe`` chooses the recipe and sets the values that differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field, flat_group, group
from contrastive_encoders.core.gense_prompts import Assembly, Direction
from contrastive_encoders.core.runtime.cluster_config import ClusterConfig
from contrastive_encoders.datamodules.sources.row_reading import RowReadingConfig
from contrastive_encoders.io.text_files import ENCODING_MEANING
from contrastive_encoders.synthesis.decoding.continuations import Decoding
from contrastive_encoders.synthesis.rules.filters import Filters
from contrastive_encoders.synthesis.rules.triplet_rules import Rules
from contrastive_encoders.synthesis.sentences.preparation import SentenceRules

Precision = Literal["fp32", "bf16", "fp16"]
InputType = Literal["auto", "text", "jsonl", "csv", "tsv", "stsb", "parquet"]

INPUT_TYPE = (
    "type of the input files; auto: detected from the file name; text: one sentence per line; jsonl, csv, tsv, "
    "parquet: the key input_column names the column of the texts; stsb: both sentences of an STS-B table"
)
COLUMN = "name of the column (or JSON key) that contains the texts"
WORKERS = "number of processes that apply the rules; null: one per CPU core"
PER_LABEL = {"overgenerate": 5, "retry": 2}  # published values


@dataclass(kw_only=True)
class GenerateConfig:
    """Configuration keys of all recipes."""

    recipe: Mapping[str, Any] = config_field(meaning="class, name, and instructions of the recipe")
    generator: str | None = config_field(
        None,
        "language model that writes the texts: hub id or directory of a causal language model (base or instruct), or, "
        "for GenSE recipes, of a GenSE generator",
    )
    input: str | Sequence[str] | None = config_field(
        None,
        "input texts: a file (.txt, .jsonl, .json, .csv, .tsv, or .parquet, optionally with .gz), a list of files "
        "[FILE,FILE], or a directory",
    )
    output: str | None = config_field(
        None,
        "output directory, to which shard-NNNNN.jsonl and manifest.json are written; recipe=dino_x1x2 writes first "
        "sentences to OUTPUT/x1",
    )
    overwrite: bool = config_field(False, "whether to delete an existing dataset in the output directory")
    quiet: bool = config_field(False, "whether to log only warnings and errors")
    encoder: str | None = config_field(
        None,
        "encoder that computes the similarities of the texts in report.html: a hub id, a checkpoint, or a directory "
        "(of a run, a sentence-transformers model, or a transformers model)",
    )
    annotation_sample: int | None = config_field(
        None,
        "number of texts or pairs that are drawn at random into annotation.csv, which does not show their labels, "
        "for a person to label; pairs with similarity labels are drawn after the default post-processing of "
        "data=dino",
        ge=1,
    )
    annotation_sheet: str | None = config_field(
        None,
        "annotation.csv with the labels that a person filled in, which are compared with the intended labels of the "
        "texts (DINO, table 3)",
    )


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Configuration keys of requests to a server."""

    in_flight: int = config_field(32, "maximum number of simultaneous requests", ge=1)
    timeout: float = config_field(120, "maximum time to wait for a response, in seconds", gt=0)
    max_retries: int = config_field(
        20,
        "maximum number of retries of a request, each after a delay of up to 8 seconds; if the last retry fails, the "
        "command fails and can be resumed",
        ge=0,
    )
    body: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "meaning": "additional JSON keys of every request, as described in the server's manual; "
            "+requests.body.KEY=VALUE adds a key, and the value null removes a default key"
        },
    )


@dataclass(kw_only=True)
class ModelConfig(GenerateConfig):
    """Configuration keys of recipes that run a language model."""

    engine: Literal["local", "openai"] = config_field(
        "local",
        "where the model runs; local: on this machine; openai: on the server at base_url (vLLM, llama.cpp, TGI, "
        "Ollama, or another server with OpenAI's API); the API key is read from the environment variable "
        "OPENAI_API_KEY",
    )
    base_url: str | None = config_field(
        None,
        "URL of the server for engine=openai, such as http://HOST:PORT/v1; `generator` is then the name of the model "
        "on the server, and sentence lengths are counted in words instead of tokens",
    )
    requests: Requests = group(Requests, "requests to the server for engine=openai")
    chat_template: bool = config_field(
        False,
        "whether to use the model's chat template, which instruct models need; the last line of a prompt then begins "
        "the answer, and the lines before it are the user's message",
    )
    revision: str | None = config_field(None, "revision (branch, tag, or commit) of the generator on the hub")
    precision: Precision = config_field("fp32", "floating-point precision of the model")
    device: str = config_field("auto", "device of the model, such as auto, cpu, cuda, or cuda:1")
    devices: int = config_field(1, "number of worker processes; each uses one GPU, if any", ge=1)
    shard_size: int = config_field(
        1000, "number of inputs per shard; an interruption loses the results of at most one shard per process", ge=1
    )
    ray: ClusterConfig = flat_group(ClusterConfig)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Configuration keys of sampling: the number of samples, and which of them are accepted."""

    strategy: Literal["overgenerate", "retry"] = config_field(
        "overgenerate",
        "sampling strategy; overgenerate: draw per_label samples and keep those that pass the filters; retry: draw "
        "samples until per_label different texts have passed the filters",
    )
    per_label: int | None = config_field(
        None,
        "number of second sentences per first sentence and label: to draw if strategy=overgenerate, to accept if "
        "strategy=retry; null: 5, or 2 if strategy=retry; recipe=dino_x1 does not use this key",
        ge=1,
    )
    max_tries: int = config_field(5, "maximum number of samples per input and label if strategy=retry")
    decay: float = config_field(100, "decay constant lambda of self-debiasing; 0: no self-debiasing", ge=0)
    epsilon: float = config_field(
        0.01, "lower bound of the factors by which self-debiasing multiplies probabilities", ge=0, le=1
    )
    filters: Filters = group(Filters, "filters of the generated texts")

    @property
    def wanted(self) -> int:
        """Return the number of texts requested for each input and label."""
        return PER_LABEL[self.strategy] if self.per_label is None else self.per_label

    def check_tries(self) -> None:
        if self.strategy == "retry" and self.max_tries < self.wanted:
            raise InputError(key="max_tries", value=self.max_tries, expected=f"at least per_label ({self.wanted})")

    def for_first_sentences(self) -> "Plan":
        """Return a plan that draws one sample per first sentence, since ``num_x1`` is the number of first sentences of
        all labels together.
        """
        return replace(self, per_label=1, max_tries=1 if self.strategy == "overgenerate" else max(self.max_tries, 1))

    def to_json(self) -> dict[str, Any]:
        numbers = {"per_label": self.wanted, "decay": float(self.decay), "epsilon": float(self.epsilon)}
        return {**asdict(self), **numbers}


@dataclass(kw_only=True)
class DinoConfig(ModelConfig):
    """Configuration keys of DINO (Schick and Schütze 2021)."""

    spec: str | None = config_field(None, "YAML or JSON file with a custom task, in the schema of the published tasks")
    input_type: InputType = config_field("auto", INPUT_TYPE)
    input_column: str = config_field("text_a", COLUMN)
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_sample: int | None = config_field(None, "maximum number of input texts, drawn at random; null: all")
    num_x1: int = config_field(
        15000, "number of first sentences if the recipe writes them, divided evenly among the labels"
    )
    ban_eos: bool = config_field(
        True, "whether only a quotation mark ends a text; false: the end-of-sequence token also ends a text"
    )
    samples: Plan = flat_group(Plan)
    how: Decoding = flat_group(Decoding)


@dataclass(kw_only=True)
class RulesConfig(GenerateConfig):
    """Configuration keys of recipes that select triplets by rules."""

    rules: Rules = group(
        Rules, "rules for triplets, as in GenSE's code; report.html shows how many triplets each rule rejects"
    )
    workers: int | None = config_field(None, WORKERS)


@dataclass(kw_only=True)
class TripletConfig(ModelConfig, RulesConfig):
    """Configuration keys of recipes that write triplets, whose candidates can be judged by GenSE's generator or by an
    instruct model.
    """

    prompts: Mapping[str, Any] = config_field(
        meaning="prompts that are used if the generator's directory contains none; prompts=FILE.yaml: custom prompts"
    )
    prompt_assembly: Assembly | None = config_field(
        None,
        "how prompts and sentences are joined; pieces: as token ids; string: as text; null: as recorded in the "
        "generator's directory, or pieces (as published) if there is no record",
    )
    max_pair_tokens: int = config_field(128, "maximum length of each of the two judged sentences, in tokens", ge=1)


@dataclass(kw_only=True)
class SentencesConfig(TripletConfig):
    """Configuration keys of triplet recipes that read sentences."""

    input_type: InputType = config_field("auto", INPUT_TYPE)
    input_column: str = config_field("text", COLUMN)
    encoding: str | None = config_field(None, ENCODING_MEANING)
    input_kind: Literal["sentences", "documents"] = config_field(
        "sentences",
        "content of the input; sentences: each text is a sentence; documents: texts are split into sentences, also at "
        "newlines",
    )
    sentences: SentenceRules = group(
        SentenceRules, "rules that select input sentences; sentences without letters are never used"
    )


@dataclass(kw_only=True)
class GenseConfig(SentencesConfig):
    """Configuration keys of GenSE (Chen et al. 2022)."""

    candidates: int = config_field(
        1,
        "number of candidates per sentence and direction (entailment, contradiction), of which the discriminator "
        "selects the most probable",
        ge=1,
    )
    max_source_tokens: int = config_field(
        96, "maximum length of a sentence in the prompt, in tokens; the prompt itself is never truncated", ge=1
    )
    how: Decoding = flat_group(Decoding)


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """Configuration keys of BM25. ``k1`` and ``b`` are named as in Lucene."""

    top: int = config_field(
        20, "number of sentences to retrieve for each input sentence; all retrieved sentences are judged", ge=1
    )
    k1: float = config_field(1.5, "term-frequency saturation of BM25", ge=0)
    b: float = config_field(0.75, "strength of the length normalization of BM25, from 0 to 1", ge=0, le=1)


@dataclass(kw_only=True)
class RetrievalConfig(SentencesConfig):
    """Configuration keys of the BM25 retrieval baseline."""

    bm25: Bm25 = group(Bm25, "BM25 retrieval")
    contradictions: Literal["none", "retrieved"] = config_field(
        "none",
        "source of contradictions; none: the recipe writes pairs of a sentence and an entailment; retrieved: the "
        "recipe writes triplets, whose contradictions are selected from the retrieved sentences",
    )


@dataclass(frozen=True, kw_only=True)
class Language:
    """Configuration keys of a translation model, which translates in one direction."""

    model: str | None = config_field(
        None, "directory or hub id of a transformers translation model: Marian, M2M-100, NLLB, mBART, or T5"
    )
    prefix: str = config_field(
        "",
        'prefix of each sentence, such as "translate English to German: " (T5) or ">>fra<< " (multilingual Marian)',
    )
    source: str | None = config_field(
        None,
        "code of the source language in the tokenizer, such as eng_Latn (NLLB), en (M2M-100), or en_XX (mBART); null: "
        "the tokenizer has no language codes",
    )
    target: str | None = config_field(
        None, "code of the target language in the tokenizer; null: the tokenizer has no language codes"
    )


@dataclass(frozen=True, kw_only=True)
class Search:
    """Configuration keys of the beam search of both translation models."""

    beams: int = config_field(5, "number of beams of beam search", ge=1)
    max_tokens: int = config_field(
        128, "maximum length of a sentence and of its translation, in tokens; longer sentences are truncated", ge=1
    )


@dataclass(kw_only=True)
class BackTranslationConfig(SentencesConfig):
    """Configuration keys of the back-translation baseline."""

    forward: Language = group(Language, "model that translates into the other language")
    backward: Language = group(Language, "model that translates back")
    search: Search = group(Search, "beam search of both models")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Configuration keys that map labels of DINO's pairs to the texts of a triplet."""

    # 0.5 on a command line is a number
    entailment: str | float = config_field("1", "label of the texts that become entailments")
    contradiction: str | float = config_field(
        "0",
        "label of the texts that become contradictions; texts whose label is neither this one nor that of the "
        "key `entailment` are not used",
    )

    def by_direction(self) -> dict[Direction, str]:
        return {"entailment": str(self.entailment), "contradiction": str(self.contradiction)}


@dataclass(kw_only=True)
class GenseDinoConfig(TripletConfig):
    """Configuration keys of the baseline that makes triplets from DINO's pairs."""

    labels: Labels = group(Labels, "labels of DINO's pairs that become entailments and contradictions")


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Configuration keys of the passages into which documents are split. Lengths are in words."""

    max_words: int = config_field(200, "maximum number of words of a passage; passages consist of full sentences", ge=1)
    overlap: int = config_field(
        0,
        "maximum number of words that a passage repeats from the end of the previous passage of its section; only "
        "full sentences are repeated; 0: passages do not overlap",
        ge=0,
    )
    min_words: int = config_field(
        20,
        "minimum number of words of a passage; a shorter passage is joined to the previous passage of its section, or "
        "left out if there is no previous passage",
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
    """Configuration keys of the rules that a question must satisfy. Null or false disables a rule."""

    min_p_yes: float | None = config_field(
        None, "minimum probability, according to the judge, that the passage answers the question", ge=0, le=1
    )
    max_rank: int | None = config_field(
        20,
        "maximum rank of the question's own passage when the encoder (key `encoder`) ranks all passages by "
        "similarity to the question",
        ge=1,
    )
    max_copied: float | None = config_field(
        0.8,
        "maximum fraction of the question's words that are copied from the passage, in runs of at least three words",
        ge=0,
        le=1,
    )
    max_from_prompt: float | None = config_field(
        0.15,
        "maximum fraction of the question's words that are copied from the prompt's examples, in runs of at least "
        "three words that are not in the passage",
        ge=0,
        le=1,
    )
    duplicates: bool = config_field(
        True,
        "whether to drop near-duplicates: questions that share at least 80 % of their words with an earlier "
        "kept question",
    )
    min_words: int = config_field(2, "minimum number of words of a question", ge=0)
    max_words: int | None = config_field(32, "maximum number of words of a question", ge=1)

    def check_lengths(self) -> None:
        if self.max_words is not None and self.max_words < self.min_words:
            raise InputError(
                key="rules.max_words", value=self.max_words, expected=f"at least rules.min_words={self.min_words}"
            )


@dataclass(kw_only=True)
class QueriesConfig(ModelConfig):
    """Configuration keys of the recipe that writes questions for passages of documents."""

    prompts: Mapping[str, Any] = config_field(
        meaning="prompt templates for writing questions, one for each style, and the judge's prompt; "
        "prompts=FILE.yaml: custom prompts"
    )
    input_column: str = config_field("text", f'{COLUMN}; headings are read from the column "title"')
    passages: Windows = group(Windows, "lengths of the passages into which documents are split")
    held_out_fraction: float = config_field(
        0.2,
        "fraction of the documents whose questions are held out for testing; OUTPUT/held_out contains these questions "
        "in BEIR's layout",
        ge=0,
        lt=1,
    )
    dev_fraction: float = config_field(
        0.1,
        "fraction of the documents whose questions are used for development, such as selecting a learning rate; "
        "OUTPUT/development contains these questions",
        ge=0,
        lt=1,
    )
    queries_per_passage: int = config_field(1, "number of questions per passage and style", ge=1)
    max_passage_tokens: int = config_field(
        160, "maximum length of a passage in a prompt, in tokens (in words with engine=openai)", ge=1
    )
    use_judge: bool = config_field(
        True,
        "whether to judge questions, which takes a third of the total time; if engine=openai, questions are judged "
        "only if rules.min_p_yes is set",
    )
    judge: str | None = config_field(
        None, "language model that judges whether a passage answers a question; null: the generator"
    )
    rules: QuestionRules = group(QuestionRules, "rules that a question must satisfy to be kept")
    negatives: int = config_field(
        3,
        "number of hard negatives per training row: the passages of other documents that are nearest to the "
        "question according to the encoder (key `encoder`); train.jsonl.gz has no questions with fewer "
        "hard negatives, but pairs.jsonl.gz does",
        ge=0,
    )
    negative_margin: float = config_field(
        0.05,
        "relative margin m: a passage is used as a negative only if its cosine similarity to the question is at "
        "most (1 - m) times that of the question's own passage",
        ge=0,
        le=1,
    )
    reuse_from: str | None = config_field(
        None,
        "output directory of an earlier command with this recipe, whose questions are reused for passages "
        "that both commands read",
    )
    estimate_only: bool = config_field(
        False,
        "whether to only log the numbers of passages and questions and the estimated time, without writing files",
    )
    reading: RowReadingConfig = flat_group(RowReadingConfig)
    how: Decoding = flat_group(Decoding)


GENERATE_CONFIGS = {  # names in defaults lists, below /settings/
    "generate": GenerateConfig,
    "recipe/dino": DinoConfig,
    "recipe/gense": GenseConfig,
    "recipe/gense_back_translation": BackTranslationConfig,
    "recipe/gense_dino": GenseDinoConfig,
    "recipe/gense_filter": RulesConfig,
    "recipe/gense_retrieval": RetrievalConfig,
    "recipe/queries": QueriesConfig,
}
