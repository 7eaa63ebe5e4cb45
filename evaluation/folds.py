"""How SentEval splits labelled rows: stratified folds, and 5 % of the training rows to stop the last training by."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from contracts import InputError
from evaluation.linear_probe import Split

# validation.py writes this number out for the outer and inner folds, whatever the seed is
FOLD_SEED = 1111
VALIDATION_SHARE = 0.05
FEWEST_ROWS = 20  # of which 5 % are a row


def stratified(labels_N: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(rows to train on, rows to test on) of each fold, ascending."""
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    return list(splitter.split(np.zeros(len(labels_N)), labels_N))


def validation_split(rows_N: np.ndarray, seed: int) -> Split:
    """The rows that train, and those that only stop the training, drawn as SentEval draws them."""
    order_N = np.random.RandomState(seed).permutation(len(rows_N))
    held = int(VALIDATION_SHARE * len(rows_N))
    return Split(_tensor(rows_N[order_N[held:]]), _tensor(rows_N[order_N[:held]]), drawn=len(rows_N))


def fold_split(rows_N: np.ndarray, fold: tuple[np.ndarray, np.ndarray]) -> Split:
    """``fold`` counts within ``rows_N``."""
    return Split(_tensor(rows_N[fold[0]]), _tensor(rows_N[fold[1]]))


def check_classes(where: str, labels_N: np.ndarray, classes: Sequence[str], fewest: int, why: str) -> None:
    """Raises InputError where a class has fewer rows than ``fewest``."""
    counts = np.bincount(labels_N, minlength=len(classes))
    for name, count in zip(classes, counts, strict=True):
        if count < fewest:
            raise InputError(
                f"{where}: {count} rows have the label {name}; wanted at least {fewest} of each of "
                f"{', '.join(classes[:10])}, {why}. Fetch the table again, or leave the task out."
            )


def fewest_for(folds: int, nested: bool) -> int:
    """Rows of a class that put it into every fold, and into every fold of what the outer folds leave."""
    if not nested:
        return folds
    rows = folds
    while rows - -(-rows // folds) < folds:
        rows += 1
    return rows


def _tensor(rows_N: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows_N, dtype=np.int64))
