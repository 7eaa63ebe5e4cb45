"""Configuration keys of an evaluation. This module does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from contrastive_encoders.core import InputError
from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.core.runtime.process_group import find_ranks
from contrastive_encoders.encoders.loading.encoder_options import ComputingOptions

MTEB = "mteb"
Suites = str | Sequence[str]
Tasks = str | Sequence[str | Mapping[str, Any]] | Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(ComputingOptions):
    """Configuration keys of ``contrastive-encoders evaluate`` and of `evaluate`."""

    action: Literal["score", "list", "check", "fetch"] = config_field(
        "score",
        "what to do; score: evaluate an encoder; list: show the test sets; check: check the files in data_root; fetch: "
        "download the missing test sets",
    )

    encoder: str | Sequence[str] | None = config_field(
        None,
        "encoder to score: the directory of a run, of an exported encoder, or of a sentence-transformers or "
        "transformers model; or a checkpoint, a hub id, a GGUF file, or a file of word vectors. For several encoders,"
        " encoder=[A,B], a table also shows paired differences from the first encoder",
    )
    reranker: str | None = config_field(
        None,
        "reranker that reorders the top documents of each query and is scored in addition to the encoder: the "
        "directory of a run of model=reranker, or the directory or hub id of a cross-encoder; null: no reranker",
    )
    rerank_top: int = config_field(100, "number of documents to rerank per query", ge=1)

    # Tasks
    suite: Suites = config_field(
        "sts",
        "suites or tasks to score: sts, senteval, transfer, probing, domain, geometry, all, mteb (tasks of the mteb "
        "library), names of tasks, or a list, such as suite=[sts,mr]; NAME@senteval is the task NAME with SentEval's "
        "tokenized text",
    )
    custom_tasks: Tasks = config_field(
        None,
        "custom tasks to score: data files, directories in BEIR's layout, or YAML files that define tasks "
        "(docs/evaluation-protocols.md)",
    )
    mteb_tasks: str | Sequence[str] | None = config_field(None, "names of the tasks to score with suite=mteb")
    data_root: str | None = config_field(
        None, "directory with the tables of the suites; null: only custom_tasks are scored"
    )
    protocol: Literal["default", "fast", "sklearn"] = config_field(
        "default",
        "how SentEval's classifiers are trained; default: with SentEval's settings for reported scores; fast: with "
        "SentEval's settings for prototyping; sklearn: as scikit-learn's logistic regression",
    )
    nhid: int = config_field(0, "number of hidden units of SentEval's classifiers; 0: linear classifiers", ge=0)
    seed: int = config_field(1111, "seed of SentEval's folds and classifiers", ge=0)
    alignment_threshold: float = config_field(
        4.0, "rating above which an STS-B pair counts as a positive pair in the alignment score", ge=0
    )
    askubuntu_text: Literal["title", "body", "title+body"] = config_field(
        "title", "part of an AskUbuntu question that is embedded"
    )
    allow_targets: Sequence[str] = config_field(
        (), "packages from which custom tasks may use functions as their metric, such as [my_package]"
    )
    intervals: bool = config_field(True, "whether to compute 95 % confidence intervals by a bootstrap over test items")

    # Output
    name: str | None = config_field(None, "name of the encoder in comparisons; null: the name of the output file")
    output: str | None = config_field(None, "output file that ends in .json; a Markdown table is written next to it")
    cache_dir: str | None = config_field(
        None, "directory that caches embeddings for later evaluations; null: no cache on disk"
    )
    quiet: bool = config_field(False, "whether to log only warnings and errors")
    download_mirror: str | None = config_field(
        None, "directory or URL of a mirror from which action=fetch gets the archives; null: the original sources"
    )

    # Encoder, with the keys of the base class
    prompt_suffix: str | None = config_field(
        None, "text that follows every input and is never truncated; null: the encoder's suffix"
    )
    attention: str | None = config_field(
        None, "attention of causal language models: causal or bidirectional; null: the setting in the model's config"
    )

    @property
    def suites(self) -> list[str]:
        """Return ``suite`` as a list of names."""
        return [self.suite] if isinstance(self.suite, str) else list(self.suite)

    @property
    def is_mteb(self) -> bool:
        """Return whether the mteb library computes the scores."""
        return MTEB in self.suites

    def check_keys(self) -> None:
        """Check keys that depend on each other, before torch is imported.

        Raises:
            InputError: a key is missing, or two of them exclude each other.
        """
        if self.mteb_tasks is not None and not self.is_mteb:
            raise self._error("mteb_tasks", "null unless suite=mteb", "Remove mteb_tasks, or choose the suite mteb.")
        if self.is_mteb:
            self._check_mteb()
        else:
            self._check_tables()
        if self.action == "score":
            self._check_names()

    def _check_tables(self) -> None:
        """Check the names of suites, and that at least one task can be scored."""
        if self.action == "score" and self.suite != "sts":
            from contrastive_encoders.evaluation.catalog import tasks_of_suites  # imports torch

            tasks_of_suites(self.suites)
        if self.data_root is None and (self.custom_tasks is None or self.action == "fetch"):
            raise InputError(
                "data_root is not set. Set data_root=FOLDER to the directory of the evaluation tables, or "
                "custom_tasks=FILE to evaluate on your own texts.",
                key="data_root",
                expected="the directory of the evaluation tables",
            )

    def _check_mteb(self) -> None:
        """Check that suite=mteb is the only suite, and that other keys are compatible with it."""
        if len(self.suites) > 1:
            others = ",".join(map(str, self.suites))
            raise InputError(
                key="suite",
                value=f"[{others}]",
                expected="mteb without other suites",
                hint="Set suite=mteb in a separate command.",
            )
        if self.custom_tasks is not None:
            hint = "Name the tasks in mteb_tasks, or score custom_tasks in a separate command."
            raise self._error("custom_tasks", "null with suite=mteb", hint)
        if self.action != "score":
            expected = "score, the only action that suite=mteb supports"
            raise self._error("action", expected, "Remove action, or choose a different suite.")
        if (processes := find_ranks().world) != 1:
            raise InputError(
                key="suite",
                value=MTEB,
                expected=f"a single process for this suite, not {processes}",
                hint="Start the command without torchrun.",
            )
        if self.reranker is not None:
            raise self._error("reranker", "null, because suite=mteb does not score rerankers")

    def _check_names(self) -> None:
        if not self.encoder:
            raise InputError(
                "encoder is not set. Set encoder=... to the directory of a run or a model, a hub id, or a file of word "
                "vectors.",
                key="encoder",
                expected="the directory of a run or a model, a hub id, or a file of word vectors",
            )
        if self.is_mteb and not isinstance(self.encoder, str):
            raise InputError(
                key="encoder",
                value=f"[{','.join(self.encoder)}]",
                expected="one encoder with suite=mteb",
                hint="Run a separate command for each encoder.",
            )
        if self.output is not None and not self.output.endswith(".json"):
            raise self._error("output", "a name that ends in .json")

    def _error(self, key: str, expected: str, hint: str | None = None) -> InputError:
        return InputError(key=key, value=getattr(self, key), expected=expected, hint=hint)
