"""P7: how fast the sentences of STS12-16, STS-B and SICK-R are encoded, against sentence-transformers' `encode`.

    python -m benchmarks.sts_speed [--quick] [--rounds 3] [--precisions fp32 bf16] [--device cpu|cuda]
                                   [--clock wall|cpu]

The same weights (all-MiniLM-L6-v2). Ours encodes all tasks as one pool; theirs goes task by task, left and
right sentences with batches of 32, its defaults. Both score every task; loading is not counted. Wanted: 1.9 times as
fast in fp32 at the same scores (0.01), 4 times in bf16 (0.05); on a GPU 4 times. Without SHARED_DATA sentences
are invented and the scores mean nothing.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import materials, texts
from benchmarks.sides import Line, alternate, arguments, clock_on, median_ratio, report
from contrastive_encoders.core import Embedder, PairTask
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.evaluation.embedding_pool import embed_pool
from contrastive_encoders.evaluation.tasks.sts import LAYOUTS, read_pairs
from contrastive_encoders.statistics.bootstrap import spearman

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
WANTED = {"fp32": (">= 1.9x", "<= 0.01"), "bf16": (">= 4x", "<= 0.05")}


def load_tasks(names: Sequence[str], quick: bool) -> list[PairTask]:
    shared = texts.shared_data()
    if shared is None:
        return [invented(name) for name in names]
    tasks = [read_pairs(shared / "eval", name, LAYOUTS[name]) for name in names]
    if quick:
        return [PairTask(t.name, t.left[:100], t.right[:100], t.gold[:100], t.subsets[:100]) for t in tasks]
    return tasks


def invented(name: str) -> PairTask:
    sentences = texts.sentences(400)
    return PairTask(name, sentences[:200], sentences[200:], np.arange(200.0), [name] * 200)


def score(left: Tensor, right: Tensor, gold: np.ndarray) -> float:
    return spearman(torch.cosine_similarity(left, right).double().cpu(), torch.from_numpy(gold)).value


def ours(encoder: Embedder, tasks: list[PairTask]) -> dict[str, float]:
    pool = embed_pool(encoder, (side for task in tasks for side in (task.left, task.right)))
    return {task.name: score(pool.of(task.left), pool.of(task.right), task.gold) for task in tasks}


def theirs(model: Any, tasks: list[PairTask]) -> dict[str, float]:
    encode = partial(model.encode, batch_size=32, convert_to_tensor=True, show_progress_bar=False)
    return {task.name: score(encode(task.left), encode(task.right), task.gold) for task in tasks}


def timed(run: Callable[[], dict[str, float]], scores: dict[str, float], clock: Callable[[], float]) -> float:
    start = clock()
    scores.update(run())
    return clock() - start


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = arguments(__doc__, rounds=3, clock=True, precisions=True, device="cpu")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    return parser.parse_args(words)


def measured(options: argparse.Namespace) -> list[Line]:
    from sentence_transformers import SentenceTransformer

    tasks, folder = load_tasks(options.tasks, options.quick), str(materials.packaged_minilm())
    clock = clock_on(options.device, options.clock)
    sides: dict[str, Callable[[list[PairTask]], dict[str, float]]] = {
        precision: partial(ours, load_encoder(folder, precision=precision, device=options.device))
        for precision in options.precisions
    }
    sides["theirs"] = partial(theirs, SentenceTransformer(folder, device=options.device))
    scores: dict[str, dict[str, float]] = {name: {} for name in sides}
    if options.device != "cpu":  # its first kernels are loaded, which is not counted
        for side in sides.values():
            side(tasks[:1])
    seconds = alternate(
        {name: partial(timed, partial(side, tasks), scores[name], clock) for name, side in sides.items()},
        1 if options.quick else options.rounds,
    )
    lines = []
    for precision in options.precisions:
        speed, nearness = WANTED[precision]
        speed = ">= 4x" if options.device != "cpu" else speed
        own, other = (float(np.median(seconds[name])) for name in (precision, "theirs"))
        ratio = median_ratio(seconds["theirs"], seconds[precision])
        lines.append(Line("P7", f"{precision}, {len(tasks)} tasks", "s", own, other, ratio, speed))
        apart = max(abs(scores[precision][task.name] - scores["theirs"][task.name]) for task in tasks)
        lines.append(Line("P7", f"{precision}, largest difference of a score", "points", apart, None, None, nearness))
    return lines


def main() -> None:
    options = parse()
    materials.hush()
    title = "STS vectors: one pool against sentence-transformers task by task"
    report(f"{title}, {options.device}, {options.clock} time", measured(options), options.output)


if __name__ == "__main__":
    main()
