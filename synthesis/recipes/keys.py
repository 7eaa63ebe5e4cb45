"""The keys of the command line and the types of their values."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from prompts import Assembly


class FilterKeys(TypedDict):
    keep_unclosed: bool
    allow_newlines: bool
    min_words: int
    copies: Literal["keep", "exact", "normalised"]
    drop_duplicates: bool
    near_duplicate_x1: float | None


class Keys(TypedDict):
    spec: str | None
    generator: str | None
    revision: str | None
    input: str | Sequence[str] | None
    input_type: Literal["auto", "text", "jsonl", "csv", "tsv", "stsb", "parquet"]
    input_column: str
    output: str | None
    num_x1: int
    strategy: Literal["overgenerate", "retry"]
    per_label: int | None
    max_tries: int
    decay: float
    epsilon: float
    max_new_tokens: int
    top_p: float | None
    top_k: int | None
    temperature: float
    ban_eos: bool
    chat_template: bool
    seed: int
    precision: Literal["fp32", "bf16", "fp16"]
    device: str
    devices: int
    rows: int | None
    token_budget: int
    shard_size: int
    overwrite: bool
    quiet: bool
    annotate: int | None
    annotations: str | None
    publish: str | None


class SentenceKeys(TypedDict):
    min_words: int
    max_words: int | None
    drop_duplicates: bool
    without: str | None


class RuleKeys(TypedDict):
    agree: bool
    threshold: float | None
    min_premise_words: int
    min_hypothesis_words: int
    drop_near_copies: bool
    drop_cut: bool


class GenseKeys(TypedDict):
    """What the recipes gense and gense_filter have besides."""

    candidates: int
    max_source_tokens: int
    max_pair_tokens: int
    prompt_assembly: Assembly | None
    input_kind: Literal["sentences", "documents"]
    workers: int | None


class Bm25Keys(TypedDict):
    top: int
    k1: float
    b: float


class LanguageKeys(TypedDict):
    model: str | None
    prefix: str
    source: str | None
    target: str | None


class SearchKeys(TypedDict):
    beams: int
    max_tokens: int


class LabelKeys(TypedDict):
    entailment: str | float  # 0.5 on a command line is a number
    contradiction: str | float


GENSE_GROUPS = {  # groups of keys that some of the recipes of GenSE have
    "sentences": SentenceKeys,
    "rules": RuleKeys,
    "bm25": Bm25Keys,
    "there": LanguageKeys,
    "back": LanguageKeys,
    "search": SearchKeys,
    "labels": LabelKeys,
}
