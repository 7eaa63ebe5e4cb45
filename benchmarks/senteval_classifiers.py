"""P8: SentEval's classifiers given the vectors, all at once beside one at a time.

    python -m benchmarks.senteval_classifiers [--quick] [--tasks mr cr ...] [--folds K] [--vectors FOLDER]
                                             [--clock wall|cpu]

Vectors are all-MiniLM-L6-v2's of the tables under SHARED_DATA, encoded once and kept in FOLDER. The other side is
``benchmarks.senteval_reference``: a torch module, autograd and torch.optim for each of the 410, 41 or 5 classifiers.
With ``--folds`` it trains those of K of the 10 outer folds of MR, CR, SUBJ and MPQA, and its time is multiplied
accordingly; accuracies of these tasks are then not compared. Wanted: 20 times as fast over the seven tasks; accuracy
within 0.3 on the mean, and per task within 0.3 or 3 test items.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import senteval_reference
from benchmarks.materials import hush, packaged_minilm
from benchmarks.senteval_reference import Result, Rules
from benchmarks.sides import CLOCKS, Line, arguments, report
from benchmarks.texts import shared_data
from contrastive_encoders.encoders import load_encoder
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.embedding_pool import Pool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import How
from contrastive_encoders.evaluation.tasks.classification import Classification
from contrastive_encoders.evaluation.tasks.features import features_of

TASKS = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
QUICK = ("trec",)
FOLDS = 10


class Race(NamedTuple):
    task: str
    ours: float  # seconds
    theirs: float
    accuracy: tuple[float, float | None]
    items: int  # of the test set


def vectors(task: Classification, folder: Path) -> Pool:
    """MiniLM's, from the folder where they are there."""
    texts = list(dict.fromkeys(text for side in task.texts() for text in side))
    path = folder / f"{task.name}.npy"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, load_encoder(packaged_minilm(), device="cpu").embed(texts).numpy())
    rows = torch.from_numpy(np.load(path))
    if len(rows) != len(texts):
        raise SystemExit(f"{path}: {len(rows)} vectors for {len(texts)} texts; delete it.")
    return Pool({text: row for row, text in enumerate(texts)}, rows)


def reference(task: Classification, pool: Pool, outer: int) -> Result:
    """Train one classifier at a time, those of ``outer`` of the outer folds."""
    parts = []
    for part in task.parts.values():
        sides = [[text or "." for text in side] for side in part.sides]
        rows = features_of(task.recipe.combination, pool, sides, torch.device("cpu")).take(torch.arange(len(sides[0])))
        parts.append((rows[:, :-1].contiguous(), torch.from_numpy(part.labels_N)))
    classes = len(task.classes)
    if len(parts) == 1:
        return senteval_reference.nested(*parts[0], classes, FOLDS, Rules(), only=range(outer))
    if len(parts) == 2:
        return senteval_reference.kfold(*parts[0], parts[1], classes, FOLDS, Rules())
    return senteval_reference.given(parts[0], parts[1], parts[2], classes, Rules())


def race(task: Classification, pool: Pool, outer: int, clock: Callable[[], float]) -> Race:
    start = clock()
    found = task.score(pool, How(intervals=False))
    ours = clock() - start
    share = outer / FOLDS if "all" in task.parts else 1.0
    start = clock()
    truth = reference(task, pool, outer) if outer else None
    theirs = (clock() - start) / share if outer else float("nan")
    items = len(list(task.parts.values())[-1].labels_N)
    accuracy = found[f"{task.name}/default/accuracy"].value, truth.test if truth and share == 1 else None
    return Race(task.name, ours, theirs, accuracy, items)


def main() -> None:
    parser = arguments(__doc__, clock=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, metavar="TASK")
    parser.add_argument("--folds", type=int, metavar="K", help="outer folds that the other side trains; 0: only ours")
    parser.add_argument("--vectors", type=Path, metavar="FOLDER", help="where encoded texts are kept")
    options = parser.parse_args()
    hush()
    torch.set_num_threads(1)  # with more, products of so few rows are slower on both sides
    outer = options.folds if options.folds is not None else 1 if options.quick else FOLDS
    names = options.tasks or (QUICK if options.quick else TASKS)
    folder = options.vectors or Path(tempfile.gettempdir()) / "senteval_vectors"
    lines, races = [], []
    data = shared_data()
    if data is None:
        raise SystemExit("SHARED_DATA is no folder; wanted one with eval/MR/all.tsv and so on.")
    for name in names:
        (task,) = load_tasks(data / "eval", name, EvaluateConfig()).tasks
        assert isinstance(task, Classification)
        one = race(task, vectors(task, folder), outer, CLOCKS[options.clock])
        races.append(one)
        lines.append(Line("P8", f"{name}, time", "s", one.ours, one.theirs, one.theirs / one.ours, ""))
        most = max(0.3, 300 / one.items)
        lines.append(Line("P8", f"{name}, accuracy", "%", *one.accuracy, None, f"within {most:.2f}"))
        if not options.quick:
            report("SentEval's classifiers", lines[-2:], None)  # what there is, should the rest take too long
    ours, theirs = (sum(getattr(one, side) for one in races) for side in ("ours", "theirs"))
    lines.append(Line("P8", f"{len(races)} tasks, time", "s", ours, theirs, theirs / ours, ">= 20x over seven tasks"))
    both = [one.accuracy for one in races if one.accuracy[1] is not None]
    if both:
        means = [float(np.mean(side)) for side in zip(*both, strict=True)]
        lines.append(Line("P8", f"mean accuracy of {len(both)} tasks", "%", means[0], means[1], None, "within 0.3"))
    title = f"SentEval's classifiers, default protocol, vectors of all-MiniLM-L6-v2, {options.clock} time"
    report(title, lines, options.output)


if __name__ == "__main__":
    main()
