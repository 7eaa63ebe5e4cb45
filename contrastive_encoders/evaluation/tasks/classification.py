"""SentEval's classification tasks, which train a classifier on frozen embeddings.

There are three schemes (``senteval/tools/validation.py``; Conneau and Kiela 2018), each with scores for dev and test:

- nested: one set; the regularization is selected on folds of each outer fold's training rows (MR, CR, SUBJ, MPQA)
- kfold: train and test; the regularization is selected on folds of train (TREC, MRPC)
- given: train, dev, and test (SST2, SST5, SICK-E, SNLI, probing)

Rows are first sorted by their number of words, then by label, as in SentEval, because folds and batches depend on the
order. Accuracies are rounded to 2 decimals before the best is selected, so that the first of tied values is selected,
and where SentEval rounds the reported values. Shape letters: N rows, K folds, R regularization values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import InputError, Prompted
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import EMPTY
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.classifiers import (
    FOLD_SEED,
    FOLDS,
    GRID,
    KFOLD_GRID,
    MIN_ROWS,
    NO_REGULARIZATION,
    Fits,
    Trainer,
    Values,
    fold_split,
    min_rows_per_class,
    stratified,
    trainer,
)
from contrastive_encoders.evaluation.tasks.features import Combination, Features, features_of
from contrastive_encoders.evaluation.tasks.linear_probe import Split
from contrastive_encoders.statistics.bootstrap import Estimate, f1, mean


class LabeledSplit(NamedTuple):
    """Labeled rows of a split, in SentEval's order."""

    where: str  # the file, for messages
    sides: tuple[list[str], ...]  # one or two sentences for each row
    labels_N: np.ndarray  # int64 class numbers


class ClassificationSpec(NamedTuple):
    """Settings of a classification task."""

    combination: Combination = "sentence"
    f1: bool = False
    changes: Mapping[str, int] = {}  # changed settings of the classifier
    regularized: bool = True
    linear_only: bool = False


class Outcome(NamedTuple):
    """Rounded accuracies on dev and test in percent, and the score of each item; `kfold` also sets the test
    predictions.
    """

    dev: float
    dev_N: Tensor
    test: float
    test_N: Tensor
    predicted_N: Tensor | None = None


class Classification:
    def __init__(
        self,
        name: str,
        recipe: ClassificationSpec,
        classes: Sequence[str],
        parts: Mapping[str, LabeledSplit],
        config: EvaluateConfig,
    ) -> None:
        """Create a task from the mapping ``parts``, whose splits are "all"; "train" and "test"; or "train", "dev", and
        "test".

        Raises:
            InputError: there are too few rows for the scheme, or ``classifiers`` asks for an unknown classifier.
        """
        self.name, self.recipe, self.classes, self.parts = name, recipe, list(classes), dict(parts)
        self.protocol = config.protocol
        self.trainer = trainer(config, 0 if recipe.linear_only else config.nhid, recipe.changes)
        self.folds, self.seed = FOLDS[config.protocol], config.seed
        test = ScoreName.parse(name)
        self.key = test.without_form()  # key of the bootstrap: both forms of a text get the same resamples
        self.dev_key = f"{self.key}-dev"
        self.dev_name = str(replace(ScoreName.parse(self.dev_key), form=test.form))
        self._check()

    def texts(self) -> Iterator[Sequence[str]]:
        for part in self.parts.values():
            for side in part.sides:
                yield _replace_empty(side)

    def score_names(self) -> list[str]:
        names = [f"{self.name}/{self.protocol}/accuracy", f"{self.dev_name}/{self.protocol}/accuracy"]
        return [*names, f"{self.name}/{self.protocol}/f1"] if self.recipe.f1 else names

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        parts = list(self.parts.values())
        sides = [
            Prompted((text for part in parts for text in _replace_empty(part.sides[side])), _replace_empty(one).prompt)
            for side, one in enumerate(parts[0].sides)
        ]
        labels_N = np.concatenate([part.labels_N for part in parts])
        features = features_of(self.recipe.combination, pool, sides, options.device)
        outcome = self._outcome(_Rows(features, labels_N, len(self.classes)))
        names = self.score_names()
        key, dev_key = (self.key, self.dev_key) if options.intervals else (None, None)
        estimates = {
            names[0]: Estimate(outcome.test, mean(outcome.test_N, key).replicates_R),
            names[1]: Estimate(outcome.dev, mean(outcome.dev_N, dev_key).replicates_R),
        }
        if self.recipe.f1 and outcome.predicted_N is not None:
            gold_N = torch.from_numpy(self.parts["test"].labels_N)
            f1_estimate = f1(outcome.predicted_N, gold_N, key)
            estimates[names[2]] = Estimate(round(f1_estimate.value, 2), f1_estimate.replicates_R)
        return estimates

    def _outcome(self, rows: "_Rows") -> Outcome:
        if "all" in self.parts:
            return nested(rows, self.trainer, self.folds)
        sizes = [len(part.labels_N) for part in self.parts.values()]
        ranges = dict(zip(self.parts, np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]), strict=True))
        if "dev" in self.parts:
            grid = GRID if self.recipe.regularized else NO_REGULARIZATION
            return fixed_splits(rows, self.trainer, grid, ranges["train"], ranges["dev"], ranges["test"])
        return kfold(rows, self.trainer, self.folds, self.seed, ranges["train"], ranges["test"])

    def _check(self) -> None:
        for part in self.parts.values():
            if not len(part.labels_N):
                expected, hint = "labeled texts below the header", "Download the table again."
                raise InputError(location=part.where, value="no rows", expected=expected, hint=hint)
        train = self.parts.get("all") or self.parts["train"]
        nested = "all" in self.parts
        min_rows = 1 if "dev" in self.parts else min_rows_per_class(self.folds, nested)
        purpose = f"enough for {self.folds}-fold cross-validation" if min_rows > 1 else "to train on"
        counts = np.bincount(train.labels_N, minlength=len(self.classes))
        for name, count in zip(self.classes, counts, strict=True):
            if count < min_rows:
                raise InputError(
                    location=train.where,
                    value=f"{count} rows with the label {name}",
                    expected=f"at least {min_rows} rows with each label ({', '.join(self.classes[:10])}), {purpose}",
                    hint="Download the table again, or remove the task.",
                )
        held_out = len(train.labels_N) // self.folds + 1 if nested else 0
        if "dev" not in self.parts and len(train.labels_N) - held_out < MIN_ROWS:
            raise InputError(
                location=train.where,
                value=f"{len(train.labels_N)} rows",
                expected=f"at least {MIN_ROWS + held_out} rows, since 5 % of the training rows are held out for early "
                "stopping",
                hint="Download the table again, or remove the task.",
            )


def _replace_empty(side: Sequence[str]) -> Prompted:
    return Prompted((text or EMPTY for text in side), getattr(side, "prompt", None))


class _Rows(NamedTuple):
    features: Features
    labels_N: np.ndarray
    classes: int

    def fit(self, trainer: Trainer, splits: Sequence[Split], values: Sequence[Sequence[float]]) -> Fits:
        table_FR = torch.tensor(values, dtype=torch.float64)
        return trainer.fit(self.features, torch.from_numpy(self.labels_N), self.classes, splits, table_FR)

    def predict(self, fits: Fits, split: int, member: int, rows_N: np.ndarray) -> Tensor:
        return fits.predict(split, member, self.features, torch.from_numpy(rows_N))

    def hits(self, predicted_N: Tensor, rows_N: np.ndarray) -> Tensor:
        return predicted_N == torch.from_numpy(self.labels_N[rows_N])


def best(accuracy_KR: np.ndarray) -> tuple[int, float]:
    """Return the index of the classifier with the highest mean accuracy over folds, and this mean in percent.

    Of means that are equal to 2 decimals, the first is returned.
    """
    scores = [round(100 * np.mean(column.tolist()), 2) for column in accuracy_KR.T]
    return int(np.argmax(scores)), float(np.max(scores))


def nested(rows: _Rows, trainer: Trainer, folds: int) -> Outcome:
    """Run nested cross-validation: train the classifiers of all inner folds together, then the classifiers of the outer
    folds.
    """
    everything, values = np.arange(len(rows.labels_N)), trainer.values(GRID)
    outer = stratified(rows.labels_N, folds, FOLD_SEED)
    splits = [
        fold_split(train, fold) for train, _ in outer for fold in stratified(rows.labels_N[train], folds, FOLD_SEED)
    ]
    inner = rows.fit(trainer, splits, [values] * len(splits))
    selected = [best(inner.accuracy_FR[place * folds : (place + 1) * folds]) for place in range(folds)]
    fits = rows.fit(
        trainer, [trainer.final_split(train) for train, _ in outer], [[values[member]] for member, _ in selected]
    )
    dev_N, test_N = (torch.zeros(len(everything), dtype=torch.float64) for _ in range(2))
    tests = []
    for place, (_, test) in enumerate(outer):
        for number in range(place * folds, (place + 1) * folds):
            dev = splits[number].dev_N
            dev_N[dev] += inner.hits[number][selected[place][0]].double() / (folds * folds * len(dev))
        right_N = rows.hits(rows.predict(fits, place, 0, test), test)
        test_N[torch.from_numpy(test)] = right_N.double() / (folds * len(test))
        tests.append(_percent(right_N))
    dev_score = round(np.mean([score for _, score in selected]), 2)
    size = len(everything)  # weights that make the mean over items equal to the mean over folds
    return Outcome(float(dev_score), dev_N * size, float(round(np.mean(tests), 2)), test_N * size)


def kfold(rows: _Rows, trainer: Trainer, folds: int, seed: int, train_N: np.ndarray, test_N: np.ndarray) -> Outcome:
    values = trainer.values(KFOLD_GRID)
    splits = [fold_split(train_N, fold) for fold in stratified(rows.labels_N[train_N], folds, seed)]
    fits = rows.fit(trainer, splits, [values] * folds)
    member, dev_score = best(fits.accuracy_FR)
    dev_rows_N = torch.zeros(len(rows.labels_N), dtype=torch.float64)
    for split, hits in zip(splits, fits.hits, strict=True):
        dev_rows_N[split.dev_N] = hits[member].double() * len(train_N) / (folds * len(split.dev_N))
    final = rows.fit(trainer, [trainer.final_split(train_N)], [[values[member]]])
    predicted_N = rows.predict(final, 0, 0, test_N)
    right_N = rows.hits(predicted_N, test_N)
    return Outcome(dev_score, dev_rows_N[train_N], _percent(right_N), right_N.double(), predicted_N)


def fixed_splits(
    rows: _Rows, trainer: Trainer, grid: Values, train_N: np.ndarray, dev_N: np.ndarray, test_N: np.ndarray
) -> Outcome:
    """Select a classifier on the dev split, and score it on the test split.

    SentEval trains the selected classifier again, with the same rows and seed, which gives the same result.
    """
    values = trainer.values(grid)
    fits = rows.fit(trainer, [Split(torch.from_numpy(train_N), torch.from_numpy(dev_N))], [values])
    member, dev_score = best(fits.accuracy_FR)
    right_N = rows.hits(rows.predict(fits, 0, member, test_N), test_N)
    return Outcome(dev_score, fits.hits[0][member].double(), _percent(right_N), right_N.double())


def _percent(right_N: Tensor) -> float:
    return round(100 * (int(right_N.sum()) / len(right_N)), 2)
