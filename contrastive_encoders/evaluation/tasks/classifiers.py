"""SentEval's two classifiers with one interface, and their data splits.

One is SentEval's own classifier, trained by Adam or RMSprop. The other is scikit-learn's logistic regression.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tasks import linear_probe
from contrastive_encoders.evaluation.tasks.features import Features
from contrastive_encoders.evaluation.tasks.linear_probe import ProbeSettings, Split

if TYPE_CHECKING:  # slow to import: about a second
    from sklearn.linear_model import LogisticRegression


class Values(NamedTuple):
    """Candidate regularization values of a validation scheme in SentEval's validation.py, for each of the two
    classifiers. ``own`` is sorted from weak to strong regularization.
    """

    own: tuple[float, ...]  # weight decay of SentEval's classifier
    sklearn: tuple[float, ...]  # C


_OWN = (1e-5, 1e-4, 1e-3, 1e-2)
GRID = Values(_OWN, tuple(2.0**power for power in range(-2, 4)))  # nested folds, given splits
KFOLD_GRID = Values(_OWN, tuple(2.0**power for power in range(-1, 6)))
NO_REGULARIZATION = Values((1e-9,), (1e9,))  # SNLI

# https://github.com/facebookresearch/SentEval, "SentEval parameters": those for scores, and those for prototyping
SETTINGS = {"default": ProbeSettings("adam", 64, 5, 4), "fast": ProbeSettings("rmsprop", 128, 3, 2)}
FOLDS = {"default": 10, "fast": 5, "sklearn": 10}
# validation.py uses this constant seed for the outer and inner folds, independent of the configured seed
FOLD_SEED = 1111
VALIDATION_SHARE = 0.05  # fraction of the training rows for early stopping of the last training
MIN_ROWS = 20  # with fewer rows, 5 % are less than a row


class SentEvalClassifier:
    """SentEval's classifier: a linear layer, or two layers if hidden units are set."""

    def __init__(self, settings: ProbeSettings) -> None:
        self.settings = settings

    def values(self, grid: Values) -> tuple[float, ...]:
        """Return this classifier's candidate values of the regularization strength."""
        return grid.own

    def final_split(self, rows_N: np.ndarray) -> Split:
        """Split ``rows_N`` for the final training: 5 % of the rows, drawn as in SentEval, are for early stopping."""
        order_N = np.random.RandomState(self.settings.seed).permutation(len(rows_N))
        dev_rows = int(VALIDATION_SHARE * len(rows_N))
        return Split(_tensor(rows_N[order_N[dev_rows:]]), _tensor(rows_N[order_N[:dev_rows]]), drawn=len(rows_N))

    def fit(
        self, features: Features, labels_N: Tensor, classes: int, splits: Sequence[Split], values_FR: Tensor
    ) -> linear_probe.Fits:
        return linear_probe.fit(features, labels_N, classes, splits, values_FR, self.settings)


class LogisticRegressions(NamedTuple):
    """Trained logistic regressions, with the interface of `linear_probe.Fits`."""

    accuracy_FR: np.ndarray
    hits: list[Tensor]
    models: list[list["LogisticRegression"]]

    def predict(self, split: int, member: int, features: Features, rows_N: Tensor) -> Tensor:
        return torch.from_numpy(self.models[split][member].predict(_plain(features, rows_N)))


class Sklearn:
    """Trainer of ``LogisticRegression(C=..., random_state=seed)``; all other arguments have the defaults of the
    installed scikit-learn.

    SentEval specifies no more. The default solver was liblinear before scikit-learn 0.22 and is lbfgs since then.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def values(self, grid: Values) -> tuple[float, ...]:
        return grid.sklearn

    def final_split(self, rows_N: np.ndarray) -> Split:
        return Split(torch.from_numpy(rows_N), torch.empty(0, dtype=torch.long))

    def fit(
        self, features: Features, labels_N: Tensor, classes: int, splits: Sequence[Split], values_FR: Tensor
    ) -> LogisticRegressions:
        fits = LogisticRegressions(np.full(tuple(values_FR.shape), np.nan), [], [])
        for place, split in enumerate(splits):
            train, dev = (_plain(features, rows) for rows in (split.train_N, split.dev_N))
            models = [self._one(train, labels_N[split.train_N].numpy(), float(c)) for c in values_FR[place]]
            fits.models.append(models)
            if len(dev):
                gold = labels_N[split.dev_N].numpy()
                hits_RN = np.stack([model.predict(dev) == gold for model in models])
                fits.accuracy_FR[place] = hits_RN.mean(1)
                fits.hits.append(torch.from_numpy(hits_RN))
        return fits

    def _one(self, rows: np.ndarray, labels: np.ndarray, c: float) -> "LogisticRegression":
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            # The protocol has 100 iterations, converged or not
            warnings.simplefilter("ignore", ConvergenceWarning)
            return LogisticRegression(C=c, random_state=self.seed).fit(rows, labels)


Fits = linear_probe.Fits | LogisticRegressions
Trainer = SentEvalClassifier | Sklearn


def trainer(config: EvaluateConfig, hidden: int, changes: Mapping[str, Any]) -> Trainer:
    """Return the trainer of the configured classifier. ``changes`` replaces settings for a task.

    Raises:
        InputError: the protocol does not support hidden units.
    """
    if config.protocol == "sklearn":
        if hidden:
            raise InputError(
                key="nhid",
                value=hidden,
                expected="0 with protocol=sklearn, which trains a logistic regression without hidden units",
            )
        return Sklearn(config.seed)
    return SentEvalClassifier(SETTINGS[config.protocol]._replace(hidden=hidden, seed=config.seed, **changes))


def stratified(labels_N: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the training and test rows of each stratified fold, in ascending order."""
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed)
    return list(splitter.split(np.zeros(len(labels_N)), labels_N))


def fold_split(rows_N: np.ndarray, fold: tuple[np.ndarray, np.ndarray]) -> Split:
    """Convert a fold, which consists of indices into ``rows_N``, to a split of row numbers."""
    return Split(_tensor(rows_N[fold[0]]), _tensor(rows_N[fold[1]]))


def min_rows_per_class(folds: int, nested: bool) -> int:
    """Return how many rows a class must contain so that every fold (if ``nested``, every inner fold) contains at least
    one of them.
    """
    rows = folds
    while nested and rows - -(-rows // folds) < folds:
        rows += 1
    return rows


def _plain(features: Features, rows_N: Tensor) -> np.ndarray:
    """Return the features (N, D), without the bias column of ones."""
    return features.take(rows_N.to(features.index_device))[:, :-1].cpu().numpy()


def _tensor(rows_N: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows_N, dtype=np.int64))
