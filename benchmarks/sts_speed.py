"""P7: the sentences of STS12-16, STS-B, and SICK-R embedded and scored, compared with sentence-transformers' `encode`.

Both sides have the same weights (all-MiniLM-L6-v2). Ours embeds all tasks as one pool; theirs goes task by task, left
and right sentences with batches of 32, its defaults, in fp32. Loading is not counted. Target: 1.9 times as fast in fp32
at the same scores (0.01), 4 times in bf16 (0.05); on a GPU 4 times. Without SHARED_DATA the sentences are invented.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import materials, texts
from benchmarks.runner import PRECISIONS, Line, alternate, clock_of, median_ratio, timed
from contrastive_encoders.core import RatedPairs
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.embedding_pool import embed_pool
from contrastive_encoders.evaluation.tasks.sts import LAYOUTS, read_pairs
from contrastive_encoders.statistics.bootstrap import spearman

TASKS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
OPTIONS = {"tasks": TASKS, "precisions": PRECISIONS, "rounds": 3, "clock": ("wall", "cpu"), "device": "cpu"}
QUICK = {"rounds": 1}
TARGETS = {"fp32": (">= 1.9x", "<= 0.01"), "bf16": (">= 4x", "<= 0.05")}


def load_tasks(names: list[str], limit: int | None) -> list[RatedPairs]:
    shared = texts.shared_data()
    if shared is None:
        corpus = texts.sentences(400)
        return [RatedPairs(name, corpus[:200], corpus[200:], np.arange(200.0), [name] * 200) for name in names]
    tasks = [read_pairs(shared / "eval", name, LAYOUTS[name]) for name in names]
    return [RatedPairs(t.name, t.left[:limit], t.right[:limit], t.gold[:limit], t.subsets[:limit]) for t in tasks]


def score(left: Tensor, right: Tensor, gold: np.ndarray) -> float:
    return spearman(torch.cosine_similarity(left, right).double().cpu(), torch.from_numpy(gold)).value


def score_pool(encoder: Any, tasks: list[RatedPairs]) -> dict[str, float]:
    pool = embed_pool(encoder, (side for task in tasks for side in (task.left, task.right)))
    return {task.name: score(pool.lookup(task.left), pool.lookup(task.right), task.gold) for task in tasks}


def score_by_task(model: Any, tasks: list[RatedPairs]) -> dict[str, float]:
    encode = partial(model.encode, batch_size=32, convert_to_tensor=True, show_progress_bar=False)
    return {task.name: score(encode(task.left), encode(task.right), task.gold) for task in tasks}


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    from sentence_transformers import SentenceTransformer

    tasks, path = load_tasks(options.tasks, 100 if options.quick else None), str(materials.packaged_minilm())
    clock, device = clock_of(options), options.device
    sides: dict[str, Callable[[list[RatedPairs]], dict[str, float]]] = {
        precision: partial(score_pool, load_encoder(path, precision=precision, device=device))
        for precision in options.precisions
    }
    sides["theirs"] = partial(score_by_task, SentenceTransformer(path, device=device))
    scores: dict[str, dict[str, float]] = {name: {} for name in sides}
    if device != "cpu":  # loading its first kernels is not counted
        for side in sides.values():
            side(tasks[:1])
    runs = {name: lambda name=name, side=side: scores[name].update(side(tasks)) for name, side in sides.items()}
    seconds = alternate({name: timed(run, clock) for name, run in runs.items()}, options.rounds)
    for precision in options.precisions:
        speed, nearness = TARGETS[precision]
        ours, theirs = seconds[precision], seconds["theirs"]
        case, ratio = f"{precision}, {len(tasks)} tasks", median_ratio(theirs, ours)
        yield Line("P7", case, "s", median(ours), median(theirs), ratio, speed if device == "cpu" else ">= 4x")
        difference = max(abs(scores[precision][task.name] - scores["theirs"][task.name]) for task in tasks)
        yield Line("P7", f"{precision}, largest difference of a score", "points", difference, target=nearness)
