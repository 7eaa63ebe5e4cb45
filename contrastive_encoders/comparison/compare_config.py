"""Configuration keys of comparisons and races. This module does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contrastive_encoders.composition.config_store import register
from contrastive_encoders.core.config_schema import config_field


@dataclass(frozen=True, kw_only=True)
class WorkersConfig:
    """Configuration keys of races and sweeps for their workers and their output."""

    parallel: int = config_field(1, "runs at the same time, with a GPU each if there are any", ge=1)
    cluster: str | None = config_field(
        None,
        "several machines: auto, ray://HOST:PORT, or ray, which starts a Ray cluster here; parallel counts its workers",
    )
    num_cpus: float | None = config_field(None, "CPUs that each worker of the cluster reserves", ge=0)
    num_gpus: float | None = config_field(None, "GPUs that each worker of the cluster reserves", ge=0)
    keep_checkpoints: bool = config_field(
        False, "true: keep the checkpoints of finished runs, 12 bytes per weight; false: only encoders and scores"
    )


@dataclass(frozen=True, kw_only=True)
class CompareConfig(WorkersConfig):
    """Configuration keys of ``contrastive-encoders compare`` and ``race``, except those of the race itself."""

    runs: str | Sequence[str] | Mapping[str, str] | None = config_field(
        None,
        "directories of runs, patterns, or FILE.json of evaluations: runs='[outputs/*,scores.json]'; with names: "
        "runs='{mine: outputs/a, base: scores.json}'",
    )
    output: str | None = config_field(
        None, "directory of report.html, report.md, table.tex, table.csv, comparison.json, and figures"
    )
    headline: str | None = config_field(
        None,
        "score to rank by; null: sts-avg7/all/spearman, or the mean of the STS tasks of all, or of nDCG@10 (MRR) of "
        "their retrieval tasks",
    )
    strict: bool = config_field(False, "true: fail if a run cannot be read; false: leave it out")

    # Sentences for the map, the neighbors, alignment, and uniformity
    sentences: int = config_field(400, "sentences of STS-B's development set, or of sentences_from; 0: none", ge=0)
    sentences_from: str | None = config_field(None, "FILE with one sentence per line")
    data_root: str | None = config_field(None, "directory of the evaluation tables; null: that of the runs")
    device: str = config_field("auto", "auto, cpu, cuda, cuda:1")

    wandb: bool = config_field(False, "true: upload tables, figures, and a summary to W&B")
    project: str = config_field("contrastive-encoders", "project on W&B")
    name: str | None = config_field(None, "name of the W&B run; null: that of the output directory")
    offline: bool = config_field(False, "true: W&B writes to the disk")

    # Keys of a race
    budget: Mapping[str, Any] | None = config_field(
        None,
        "of a run: {steps: 1000}, {examples: 100000}, {tokens: 10000000}, or {seconds: 600}; null: that of the race",
    )
    seeds: Sequence[int] | None = config_field(None, "seeds of the runs, e.g. [1,2,3]; null: those of the race")
    untrained: bool = config_field(
        True, "true: also compare the initial encoder of the first arm (a run of one step with model.lr=0)"
    )
    tfidf: bool = config_field(True, "true: also compare TF-IDF, if the headline is of retrieval tasks")
    quiet: bool = config_field(False, "true: only warnings and errors")


register("compare", CompareConfig)
