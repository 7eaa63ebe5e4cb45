"""``suite=mteb``: score encoders on the mteb library's tasks, with its data, splits, and metrics, from 0 to 100.

The library is an optional extra that is imported on demand. Named prompts of an encoder's folder (``query``,
``document``, a task, a kind of task) replace its default prompt, as selected by the library. The data come from the
hub or its cache.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from contrastive_encoders.core import Embedder, InputError, missing_package
from contrastive_encoders.evaluation.embedding_pool import prompts_of

log = logging.getLogger(__name__)

PROTOCOL = "mteb"  # protocol in the score names


def choose_tasks(names: Sequence[str]) -> list[Any]:
    """Return the mteb library's tasks with the given names.

    Raises:
        InputError: the extra is missing, no task was given, a task does not exist, or its data are not texts.
    """
    if not names:
        raise InputError(
            key="mteb_tasks", value=None, expected="names of mteb tasks", hint="Set mteb_tasks=[STSBenchmark,STS12]."
        )
    try:
        import mteb
        from mteb.abstasks.aggregated_task import AbsTaskAggregate
    except ImportError as error:
        raise missing_package("mteb", "mteb", key="suite", value="mteb") from error
    try:
        tasks = list(mteb.get_tasks(tasks=list(dict.fromkeys(names))))
    except (KeyError, ValueError) as error:
        expected = f"names of mteb tasks ({str(error).rstrip('.')})"
        raise InputError(key="mteb_tasks", value=",".join(map(str, names)), expected=expected) from error
    for task in tasks:
        if isinstance(task, AbsTaskAggregate) or task.metadata.modalities != ["text"]:
            raise InputError(
                key="mteb_tasks",
                value=task.metadata.name,
                expected="a single text task, not an aggregate of several tasks or a task of another modality",
            )
    return tasks


def check_data(tasks: Sequence[Any]) -> None:
    """Check that the data of all tasks can be loaded, before the first task is scored.

    Raises:
        InputError: the data of a task are not available.
    """
    for task in tasks:
        _load(task)
        if len(tasks) > 1:  # only one in memory at a time
            task.unload_data()


def _load(task: Any) -> None:
    try:
        task.load_data()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a data set that is a script
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            location=f"task {task.metadata.name}",
            value=reason,
            expected=f"the data set {task.metadata.dataset['path']} in the cache or on the Hub",
            hint="Remove the task, or download its data on a machine that can reach the Hub.",
        ) from error


def run_tasks(embedder: Embedder, tasks: Sequence[Any], *, results: Path | None = None) -> dict[str, float]:
    """Score an encoder on tasks of the mteb library.

    All of the library's results are written to the folder ``results``.

    Returns:
        ``task[-split][:subset]/mteb/metric`` -> the task's main score.

    Raises:
        InputError: the data of a task are not available.
    """
    import mteb

    encoder = _Encoder(embedder)
    scores = {}
    for task in tasks:
        name, metric = task.metadata.name, task.metadata.main_score
        _load(task)
        (task_results,) = mteb.evaluate(
            encoder, task, cache=None, co2_tracker=False, show_progress_bar=False
        ).task_results
        if results is not None:
            results.mkdir(parents=True, exist_ok=True)
            task_results.to_disk(results / f"{name}.json")
        for split, subsets in task_results.scores.items():
            for one in subsets:
                subset = "" if one["hf_subset"] == "default" else f":{one['hf_subset']}"
                ending = "" if split == "test" else f"-{split}"
                scores[f"{name}{ending}{subset}/{PROTOCOL}/{metric}"] = 100 * float(one["main_score"])
    return scores


class _Encoder:
    """Adapter from an `Embedder` to the encoder interface of the mteb library."""

    def __init__(self, embedder: Embedder) -> None:
        from mteb.models import ModelMeta

        self.embedder, self.prompts = embedder, dict(prompts_of(embedder).named)
        self.mteb_model_meta = ModelMeta.create_empty({"name": "local/encoder", "revision": "1"})

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **_: Any) -> Tensor:
        from mteb.models.abs_encoder import get_prompt

        texts = [text for batch in inputs for text in batch["text"]]
        prompt = get_prompt(self.prompts, task_metadata, prompt_type) if self.prompts else None
        return self.embedder.embed(texts, prompt=prompt)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        return normalize(torch.as_tensor(embeddings1), dim=-1) @ normalize(torch.as_tensor(embeddings2), dim=-1).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        return cosine_similarity(torch.as_tensor(embeddings1), torch.as_tensor(embeddings2), dim=-1)
