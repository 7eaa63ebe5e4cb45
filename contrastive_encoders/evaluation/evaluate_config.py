"""Configuration keys of an evaluation. This module does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from contrastive_encoders.composition.config_store import register
from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.runtime.process_group import find_ranks

MTEB = "mteb"
Suites = str | Sequence[str]
Tasks = str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Configuration keys of ``contrastive-encoders evaluate`` and of `evaluate`."""

    action: Literal["score", "list", "check", "fetch"] = config_field(
        "score", "list: show the sets; check: the tables under data_root; fetch: what is missing there"
    )

    # What is scored
    encoder: str | Sequence[str] | None = config_field(
        None,
        "several: encoder=[A,B], shown in one table with paired differences to the first; run folder, checkpoint, "
        "exported or any sentence-transformers or transformers folder, hub id, word-vector file",
    )
    reranker: str | None = config_field(
        None,
        "a run of model=reranker, a folder or hub id of a cross-encoder: what the encoder finds in retrieval tasks is "
        "scored once more as it orders it",
    )
    rerank_top: int = config_field(100, "how many of the first documents of each query", ge=1)
    pooling: str | None = config_field(
        None,
        "null: the encoder's own, else mean; mean, cls, last, weighted_mean, max, cls_before_pooler, pooler_output, "
        "avg_top2, avg_first_last, avg_embedding_last, first_decoder; of word vectors also mean_lower_fallback",
    )
    prompt: str | None = config_field(None, "put before every text; null: the encoder's own")
    prompt_suffix: str | None = config_field(None, "put behind every text, and never cut; null: the encoder's own")
    max_length: int | None = config_field(None, "tokens; null: the encoder's own", ge=1)
    attention: str | None = config_field(
        None, "of a causal language model: causal, bidirectional; null: as its config says"
    )
    truncate: int | None = config_field(
        None,
        "256: only the first 256 numbers of each vector, as of one that was trained by prefixes (model.matryoshka)",
    )
    precision: Literal["fp32", "bf16"] = config_field("fp32", "of weights and states")
    device: str = config_field("auto", "auto, cpu, cuda, cuda:1")

    # On what
    suite: Suites = config_field(
        "sts",
        "sts, senteval, transfer, probing, domain, geometry, all; tasks; several: suite=[sts,mr]; NAME@senteval: "
        "SentEval's form of the text; mteb: the official library",
    )
    tasks: Tasks = config_field(
        None,
        "of your own: files, folders as BEIR has them, YAML files (configs/task has the keys); of suite=mteb: its "
        "names",
    )
    data_root: str | None = config_field(None, "the folder of the tables; null: tasks alone")
    protocol: Literal["default", "fast", "sklearn"] = config_field("default", "of SentEval's classifiers")
    nhid: int = config_field(0, "hidden units of the classifiers; 0: linear", ge=0)
    seed: int = config_field(1111, "of folds and classifiers; SentEval's", ge=0)
    alignment_above: float = config_field(4.0, "alignment is of STS-B pairs with a higher rating", ge=0)
    askubuntu_text: Literal["title", "body", "title+body"] = config_field("title", "what of a question is embedded")
    allow_targets: Sequence[str] = config_field(
        (), "prefixes, e.g. my_package: what the metric of a task of your own may name"
    )
    intervals: bool = config_field(True, "95 %, bootstrap over test items")

    # Output
    name: str | None = config_field(None, "of the encoder's arm in a comparison; null: the name of the file")
    output: str | None = config_field(None, "FILE.json; a Markdown table is written beside it")
    cache_dir: str | None = config_field(None, "keeps vectors by encoder and text, for the next evaluation")
    quiet: bool = config_field(False, "true: warnings and errors alone")
    source: str | None = config_field(
        None, "of action=fetch: folder or URL that mirrors the archives; null: where they were published"
    )

    @property
    def suites(self) -> list[str]:
        """Names of the suites."""
        return [self.suite] if isinstance(self.suite, str) else list(self.suite)

    @property
    def is_mteb(self) -> bool:
        """Whether the mteb library scores."""
        return MTEB in self.suites

    def check_keys(self) -> None:
        """Check keys that depend on each other, before torch is imported.

        Raises:
            InputError: a key is missing, or two of them exclude each other.
        """
        if self.is_mteb:
            self._check_mteb()
        elif self.data_root is None and (self.tasks is None or self.action == "fetch"):
            raise InputError(
                "data_root is not set: it is the folder of the evaluation tables. Say data_root=FOLDER; or tasks=FILE "
                "for texts of your own.",
                key="data_root",
                expected="the folder of the evaluation tables",
            )
        if self.action == "score":
            self._check_names()

    def _check_mteb(self) -> None:
        """Check that suite=mteb stands alone, in one process, and only scores one encoder."""
        if len(self.suites) > 1:
            others = ",".join(map(str, self.suites))
            raise InputError(
                f"suite=[{others}]: mteb stands alone. Say suite=mteb in a command of its own.",
                key="suite",
                value=self.suite,
                expected="mteb alone",
            )
        if self.action != "score":
            raise InputError(
                f"action={self.action}: looks after the tables of our suites, and suite=mteb keeps its data in the "
                "hub's cache. Leave action out, or choose another suite.",
                key="action",
                value=self.action,
                expected="score with suite=mteb",
            )
        if (processes := find_ranks().world) != 1:
            raise InputError(f"suite=mteb runs in one process, got {processes}. Start it without torchrun.")
        if self.reranker is not None:
            raise InputError(
                key="reranker", value=self.reranker, expected="null, since suite=mteb scores encoders alone"
            )

    def _check_names(self) -> None:
        if not self.encoder:
            raise InputError(
                "encoder is not set: a run folder, a model folder, a hub id or a word-vector file; say encoder=...",
                key="encoder",
                expected="a run folder, a model folder, a hub id, or a word-vector file",
            )
        if self.is_mteb and not isinstance(self.encoder, str):
            raise InputError(
                key="encoder",
                value=f"[{','.join(self.encoder)}]",
                expected="one encoder with suite=mteb",
                hint="Start a command for each of them.",
            )
        if self.output is not None and not self.output.endswith(".json"):
            raise InputError(
                f"output={self.output}: wanted a name that ends in .json; a Markdown table is written beside it.",
                key="output",
                value=self.output,
                expected="a name that ends in .json",
            )


register("evaluate", EvaluateConfig)
