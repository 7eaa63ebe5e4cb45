"""What single test items came to, kept beside the scores: comparisons of encoders are made of it, item by item."""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from torch import Tensor

from contracts import ItemScores, PairTask
from evaluation.statistics import Estimate
from evaluation.sts import Similarity
from evaluation.task import Task


def items_of(tasks: Iterable[Task], cosines: Mapping[str, Tensor], estimates: Mapping[str, Estimate]) -> ItemScores:
    """``cosines`` are those of the tasks of pairs, ``estimates`` all scores, averages among them."""
    pairs = {task.name: task.pairs for task in tasks if isinstance(task, Similarity)}
    return ItemScores(
        cosines={name: values_N.numpy() for name, values_N in cosines.items()},
        gold={name: np.asarray(task.gold, np.float64) for name, task in pairs.items()},
        subsets={name: np.array(task.subsets) for name, task in pairs.items()},
        digests={name: digest(task) for name, task in pairs.items()},
        replicates={
            name: one.replicates_R.float().numpy() for name, one in estimates.items() if one.replicates_R is not None
        },
    )


def digest(task: PairTask) -> str:
    """Sixteen hex digits of the pairs, their order and their ratings."""
    found = hashlib.sha256()
    for left, right, gold in zip(task.left, task.right, task.gold, strict=True):
        found.update(f"{left}\0{right}\0{float(gold)!r}\0".encode())
    return found.hexdigest()[:16]
