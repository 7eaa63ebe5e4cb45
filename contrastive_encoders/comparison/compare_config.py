"""Configuration keys of comparisons and races. This module does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.core.runtime.cluster_config import ClusterConfig


@dataclass(frozen=True, kw_only=True)
class WorkersConfig(ClusterConfig):
    """Configuration keys of races and sweeps: their workers, and whether checkpoints are kept."""

    parallel: int = config_field(
        1,
        "number of runs that train at the same time; each uses one GPU, if any; runs share GPUs if there are too few",
        ge=1,
    )
    keep_checkpoints: bool = config_field(
        False, "whether to keep the checkpoints of finished runs, which take 12 bytes of disk space per model parameter"
    )


@dataclass(frozen=True, kw_only=True)
class CompareConfig(WorkersConfig):
    """Configuration keys of ``contrastive-encoders compare`` and ``race``, except those that define a race
    (``race.KEY``).
    """

    runs: str | Sequence[str] | Mapping[str, str] | None = config_field(
        None,
        "runs to compare: run directories, glob patterns, or result files of evaluations, such as "
        "runs='[outputs/*,scores.json]'; or a mapping from arm names to runs, such as runs='{mine: outputs/a, "
        "base: scores.json}'",
    )
    output: str | None = config_field(
        None, "output directory for report.html, report.md, table.tex, table.csv, comparison.json, and figures"
    )
    ranking_metric: str | None = config_field(
        None,
        "score that ranks the runs; null: the first of the following that all runs report: sts-avg7/all/spearman, "
        "sts-avg5/mean/spearman, the mean over the STS tasks, the mean nDCG@10 (or MRR, if there is no nDCG@10) over "
        "the retrieval tasks, or any other score",
    )
    strict: bool = config_field(False, "whether to fail if a run cannot be read; false: skip the run")

    # Sentences for the map, the neighbors, alignment, and uniformity
    sentences: int = config_field(
        400,
        "number of sentences from `sentences_from` whose embeddings are compared (2-D map, nearest neighbors, "
        "alignment, and uniformity); 0: embeddings are not compared",
        ge=0,
    )
    sentences_from: str | None = config_field(
        None,
        "text file with the sentences whose embeddings are compared, one per line; null: the STS-B development set",
    )
    data_root: str | None = config_field(
        None, "directory of the evaluation tables; null: the directory that the runs used"
    )
    device: str = config_field("auto", "device that computes the embeddings, such as auto, cpu, cuda, or cuda:1")

    wandb: bool = config_field(False, "whether to upload tables, figures, and a summary to W&B")
    wandb_project: str = config_field("contrastive-encoders", "name of the W&B project")
    wandb_name: str | None = config_field(None, "name of the W&B run; null: the name of the output directory")
    wandb_offline: bool = config_field(False, "whether W&B only writes to disk; false: it uploads")

    # Keys of a race
    budget: Mapping[str, Any] | None = config_field(
        None,
        "training budget of each run: {steps: 1000}, {examples: 100000}, {tokens: 10000000}, or {seconds: 600}; null: "
        "the budget in the race's config",
    )
    seeds: Sequence[int] | None = config_field(
        None, "seeds of the runs, such as [1,2,3]; null: the seeds in the race's config"
    )
    untrained: bool = config_field(
        True,
        "whether to also compare the initial encoder of the first arm, which is scored after one step with model.lr=0",
    )
    tfidf: bool = config_field(True, "whether to also compare TF-IDF if a retrieval score ranks the runs")
    quiet: bool = config_field(False, "whether to log only warnings and errors")
