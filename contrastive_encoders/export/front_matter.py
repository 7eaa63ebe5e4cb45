"""YAML front matter of a model card for the hub."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from contrastive_encoders.core import Results
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.io.installed_models import hub_name

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
COSINE_PROTOCOLS = ("all", "cosine")


def front_matter(library: str, *, tags: tuple[str, ...] = (), base_model: str = "", **fields: Any) -> str:
    """Return the YAML front matter of a model card, enclosed by two ``---`` lines. ``fields`` are those of
    ModelCardData.
    """
    data = ModelCardData(
        library_name=library,
        pipeline_tag="sentence-similarity",
        tags=[library, "sentence-similarity", "feature-extraction", *tags],
        base_model=base_model if is_hub_id(base_model) else None,
        **fields,
    )
    return f"---\n{data.to_yaml()}\n---"


def front_matter_of_run(results: Results, library: str) -> str:
    """Return the front matter with the base model, data sets, and scores of a run."""
    scores = list(_eval_results(results["scores"]))
    return front_matter(
        library,
        tags=(results["objective"],),
        base_model=hub_name(results["backbone"]),
        datasets=hub_dataset_ids(results["data"]) or None,
        eval_results=scores or None,
        model_name=f"sentence encoder by {results['objective']}" if scores else None,
    )


def hub_dataset_ids(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the distinct Hub ids that the manifests of data sets, or of the parts of mixtures, list as sources."""
    names = list[str]()
    for manifest in manifests:
        if "parts" in manifest:
            names += hub_dataset_ids(manifest["parts"].values())
        else:
            found = manifest.get("source", manifest).get("hub", [])
            names += [one["id"] for one in found if is_hub_id(one["id"])]
    return list(dict.fromkeys(names))


def is_hub_id(name: str) -> bool:
    """Return whether a name has the form of a Hub id, such as ``OWNER/NAME``.

    ``tiny`` means random weights; existing folders take precedence.
    """
    return name != "tiny" and HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def _eval_results(scores: Mapping[str, float]) -> Iterator[EvalResult]:
    """Yield the correlations of cosines (-1 to 1, with the names of sentence-transformers) and the accuracies (0 to 1)
    as evaluation results.
    """
    for name, value in sorted(scores.items()):
        found = ScoreName.parse(name)
        if found.form or found.size or "-" in found.task or not found.protocol:  # an average, or other rows
            continue
        metric = found.metric
        if metric in ("spearman", "pearson") and found.protocol in COSINE_PROTOCOLS:
            task, metric = ("semantic-similarity", "Semantic Similarity"), f"{metric}_cosine"
        elif metric == "accuracy":
            task = ("text-classification", "Text Classification")
        else:
            continue
        split = found.split or "test"
        yield EvalResult(
            task_type=task[0],
            task_name=task[1],
            dataset_type=found.task,
            dataset_name=found.task.upper() if split == "test" else f"{found.task.upper()} {split}",
            dataset_split=split,
            metric_type=metric,
            metric_name=name,
            metric_value=round(value / 100, 6),
        )
