"""P8: SentEval's classifiers on given embeddings, in one batch, compared with one at a time.

Embeddings are all-MiniLM-L6-v2's of the tables in SHARED_DATA. The other side is tests.evaluation.senteval_reference: a
torch module, autograd, and torch.optim for each of the 410, 41, or 5 classifiers. With ``--folds`` it trains those of
this number of the 10 outer folds of MR, CR, SUBJ, and MPQA, and its time is multiplied accordingly; accuracies of these
tasks are then not compared. Target: 20 times as fast over the seven tasks; accuracy within 0.3 on the mean, and per
task within 0.3 or 3 test items.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import torch

from benchmarks.materials import packaged_minilm
from benchmarks.runner import Line, clock_of
from benchmarks.texts import shared_data
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, embed_pool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.classification import Classification
from contrastive_encoders.evaluation.tasks.features import features_of
from tests.evaluation import senteval_reference
from tests.evaluation.senteval_reference import Result, Rules

OPTIONS = {"tasks": ["mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"], "folds": 10, "clock": ("wall", "cpu")}
QUICK = {"tasks": ["trec"], "folds": 1}
FOLDS = 10


def train_reference(task: Classification, pool: EmbeddingPool, folds: int, rules: Rules) -> Result:
    """Train one classifier at a time, those of the first outer folds."""
    parts = []
    for part in task.parts.values():
        sides = [[text or "." for text in side] for side in part.sides]
        rows = features_of(task.recipe.combination, pool, sides, torch.device("cpu")).take(torch.arange(len(sides[0])))
        parts.append((rows[:, :-1].contiguous(), torch.from_numpy(part.labels_N)))
    classes = len(task.classes)
    if len(parts) == 1:
        return senteval_reference.nested(*parts[0], classes, FOLDS, rules, only=range(folds))
    if len(parts) == 2:
        return senteval_reference.kfold(*parts[0], parts[1], classes, FOLDS, rules)
    return senteval_reference.given(parts[0], parts[1], parts[2], classes, rules)


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    torch.set_num_threads(1)  # more make both sides slower: the matrices have few rows
    data, clock = shared_data(), clock_of(options)
    if data is None:
        raise SystemExit("SHARED_DATA is not a folder; set it to one with eval/MR/all.tsv and so on.")
    encoder, times, accuracies = load_encoder(packaged_minilm(), device="cpu"), [], []
    for name in options.tasks:
        (task,) = load_tasks(data / "eval", name, EvaluateConfig()).tasks
        assert isinstance(task, Classification)
        pool = embed_pool(encoder, task.texts())
        share = options.folds / FOLDS if len(task.parts) == 1 else 1.0
        start = clock()
        scores = task.score(pool, ScoringOptions(intervals=False))
        middle = clock()
        reference = train_reference(task, pool, options.folds, Rules(max_epoch=4) if options.quick else Rules())
        ours, theirs = middle - start, (clock() - middle) / share
        times.append((ours, theirs))
        yield Line("P8", f"{name}, time", "s", ours, theirs, theirs / ours)
        if share == 1:
            accuracies.append((scores[f"{name}/default/accuracy"].value, reference.test))
            tolerance = max(0.3, 300 / len(list(task.parts.values())[-1].labels_N))
            yield Line("P8", f"{name}, accuracy", "%", *accuracies[-1], target=f"within {tolerance:.2f}")
    ours, theirs = map(sum, zip(*times, strict=True))
    yield Line("P8", f"{len(times)} tasks, time", "s", ours, theirs, theirs / ours, ">= 20x over seven tasks")
    if accuracies:
        means = map(mean, zip(*accuracies, strict=True))
        yield Line("P8", f"mean accuracy of {len(accuracies)} tasks", "%", *means, target="within 0.3")
