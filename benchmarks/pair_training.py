"""P1, P25: training on pairs as a run does it, compared with the trainer of sentence-transformers.

all-MiniLM-L6-v2: cosine regression on STS-B's training pairs in batches of 32 (CosineSimilarityLoss), and in-batch
contrast on NLI premises with their entailments in batches of 64 (MultipleNegativesRankingLoss at scale 20, our
temperature 0.05). Ours: Lightning's Trainer with the callbacks of a run, and the data module over a prepared row store.
Theirs: SentenceTransformerTrainer with its defaults, so it tokenizes every batch, as it always does. Both get the
same pairs in the same batches, the same limit of 128 tokens, AdamW, clipping, and weights. First both train in fp32
without dropout, and must end at the same weights. Without SHARED_DATA pairs are invented. Target: 2 times the pairs/s.

P25: the share of matrix products in the steps of ours. They are recorded, and computed again alone.
"""

import argparse
import json
import os
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks import materials, texts
from benchmarks.products import RecordedProducts
from benchmarks.runner import PRECISIONS, Line, alternate, clock_of, rates, timed
from benchmarks.trainers import OPTIMIZER, Work, check_equal, largest_difference, train, train_by_library
from contrastive_encoders.core.runtime.malloc import reuse_freed_memory
from contrastive_encoders.evaluation.tasks.sts import STSLayout, read_pairs

OPTIONS = {
    "objectives": ["cosine", "contrastive"],
    "precisions": PRECISIONS,
    "rounds": 5,
    "steps": 20,
    "clock": ("wall", "cpu"),
    "device": "cpu",
}
QUICK = {"objectives": ["cosine"], "rounds": 1, "steps": 2}
TEMPERATURE, MAX_LENGTH = 0.05, 128
BATCH = {"cosine": 32, "contrastive": 64}
COLUMNS = {  # our columns -> those of sentence-transformers
    "cosine": {"text_a": "sentence1", "text_b": "sentence2", "label": "score"},
    "contrastive": {"anchor": "anchor", "positive": "positive"},
}
SHARES = {"fp32": ">= 0.75x", "bf16": ">= 0.6x"}  # of matrix products in a step
CHECKED_STEPS = 3
PRODUCT_STEPS = 4
TOLERANCE = 1e-4  # Adam makes the first steps of any gradient as long as the learning rate


def read_rows(objective: str, count: int) -> list[dict[str, Any]]:
    shared, rows = texts.shared_data(), list[tuple[Any, ...]](texts.entailments(count))
    if objective == "cosine" and shared is None:
        rows = [(*pair, number % 7 / 6) for number, pair in enumerate(rows)]
    elif objective == "cosine":
        layout = STSLayout({"STSBenchmark/train": 5749}, 0, 5, has_subsets=False)
        task = read_pairs(shared / "eval", "stsb-train", layout)
        scores = [round(score / 5, 4) for score in task.gold.tolist()]
        rows = [*zip(task.left, task.right, scores, strict=True)]
    return [dict(zip(COLUMNS[objective], row, strict=True)) for row in rows]


def prepare(
    objective: str, backbone: Path, folder: Path, count: int, max_length: int = MAX_LENGTH
) -> tuple[Any, list[dict[str, Any]]]:
    """Return the data module with its store, and its examples as sentence-transformers wants them."""
    path, rows = folder / f"{objective}.jsonl", read_rows(objective, count)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    name, keys = ("dino", {"postprocess": "off", "dev_fraction": 0.0}) if objective == "cosine" else ("triplets", {})
    keys |= {"max_length": max_length, "cache_dir": folder / "cache", "tokenizer": backbone}
    data = materials.data_module(name, path=path, batch_size=BATCH[objective], **keys)
    data.prepare_data()
    data.setup()
    if objective == "cosine":  # the store holds them in the order of its own shuffle
        rows = [{"text_a": one.texts[0], "text_b": one.texts[1], "label": one.label} for one in data.source()]
    return data, [{new: row[old] for old, new in COLUMNS[objective].items()} for row in rows]


def train_ours(objective: str, backbone: Path, work: Work, *callbacks: Any) -> tuple[float, dict[str, Tensor]]:
    """Return the seconds of the timed steps, and the weights after them."""
    keys: dict[str, Any] = {"pooling": "mean", "max_length": MAX_LENGTH, **OPTIMIZER}
    if objective == "contrastive":
        keys |= {"mlp": False, "temperature": TEMPERATURE}
    model = materials.objective("sroberta" if objective == "cosine" else "simcse", backbone, **keys)
    return train(model, work, *callbacks), model.encoder.trunk.state_dict()


def train_theirs(objective: str, backbone: Path, work: Work) -> tuple[float, dict[str, Tensor]]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss

    model: Any = SentenceTransformer(str(backbone), device=work.device)
    model.max_seq_length = MAX_LENGTH
    loss = (
        CosineSimilarityLoss(model)
        if objective == "cosine"
        else MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    )
    return train_by_library(model, loss, work), model[0].auto_model.state_dict()


def copy_without_dropout(backbone: Path, folder: Path) -> Path:
    shutil.copytree(backbone, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    backbone, clock = materials.packaged_minilm(), clock_of(options)
    still = copy_without_dropout(backbone, folder / "still")
    for objective in options.objectives:
        batch = BATCH[objective]
        data, rows = prepare(objective, backbone, folder, max((options.steps + 1) * batch, 4_096))
        work = Work(data, rows, "fp32", CHECKED_STEPS - 1, clock, folder / "run", options.device)
        weights = [side(objective, still, work)[1] for side in (train_theirs, train_ours)]
        equal = check_equal("weights", largest_difference(*weights), TOLERANCE)
        for precision in options.precisions:
            work = work._replace(precision=precision, steps=options.steps)
            sides = {
                "ours": lambda objective=objective, work=work: train_ours(objective, backbone, work)[0],
                "theirs": lambda objective=objective, work=work: train_theirs(objective, backbone, work)[0],
            }
            seconds = alternate(sides, options.rounds)
            case = f"{objective} {precision}, {batch} pairs, {equal}"
            yield rates("P1", case, "pairs/s", options.steps * batch, *seconds.values(), ">= 2x")
            if options.device == "cpu":
                case = f"{objective} {precision}: matrix products; {PRODUCT_STEPS} steps"
                steps = work._replace(steps=PRODUCT_STEPS)
                yield from products_lines(case, backbone, objective, steps, options.rounds)


def products_lines(case: str, backbone: Path, objective: str, work: Work, rounds: int) -> Iterator[Line]:
    """Yield the line of P25: the time of the matrix products of the timed steps, and of these steps."""
    recorded = RecordedProducts()
    train_ours(objective, backbone, work, recorded)
    compute = recorded.computation()

    def products() -> float:
        reuse_freed_memory(True)
        compute()  # maps the memory of the results
        seconds = timed(compute, work.clock)()
        reuse_freed_memory(False)
        return seconds

    seconds = alternate({"products": products, "steps": lambda: train_ours(objective, backbone, work)[0]}, rounds)
    own, steps = map(statistics.median, seconds.values())
    yield Line("P25", case, "s", own, steps, own / steps, SHARES[work.precision])
