"""SentEval's supervised relatedness tasks (SICK-R, STS-B): a softmax over the ratings 1 to 5, trained on features of
pairs.

The task is that of Conneau and Kiela 2018, after Tai, Socher and Manning 2015. The features are |a - b| and a * b. The
target of a rating is its split between the two adjacent integers. The loss is the mean squared error of the five
probabilities, and the predicted rating is their mean. With SentEval's seed, the initial weights and the order of the
batches are identical to SentEval's.

The training takes up to 94,500 steps of 64 rows with 5 outputs. Autograd and an optimizer would take several times
longer than the arithmetic, so both are written out here.

Shape letters: N pairs, B pairs of a batch, D width of an embedding, F = 2 D + 1 features with a constant one for the
bias, 5 ratings.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.core import RatedPairs
from contrastive_encoders.core.score_names import ScoreName
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool, finite_rows
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import SENTEVAL
from contrastive_encoders.evaluation.task import ScoringOptions, TaskEntry
from contrastive_encoders.evaluation.tasks.probe_optimizers import initial_layer, one_thread
from contrastive_encoders.evaluation.tasks.sts import SICK, STSB, STSLayout, read_pairs
from contrastive_encoders.statistics.bootstrap import Estimate, mean, pearson, spearman

log = logging.getLogger(__name__)

RATINGS = 5
BATCH = 64
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8  # Adam's
EPOCHS_PER_CHECK = 50
LAST_START = 1000  # last epoch after which 50 further ones are trained, so that there are at most 1,050
MAX_FAILURES = 4  # total number of checks, not necessarily consecutive, without improvement of the best score
CORRELATIONS: dict[str, Callable[[Tensor, Tensor], Estimate]] = {"pearson": pearson, "spearman": spearman}


@dataclass
class Relatedness:
    """Supervised relatedness task, which trains a regressor on ``train`` with early stopping on ``dev``, and scores
    ``dev`` and ``test``.
    """

    name: str  # name of the task; the scores start with the names of ``test`` and ``dev``
    train: RatedPairs
    dev: RatedPairs
    test: RatedPairs
    protocol: str = "regressor"
    select: str = "pearson"  # correlation of the dev pairs; "spearman" in the fork that SimCSE and GenSE use
    seed: int = 1111

    def texts(self) -> Iterator[Sequence[str]]:
        for pairs in (self.train, self.dev, self.test):
            yield pairs.left
            yield pairs.right

    def score_names(self) -> list[str]:
        test, dev = f"{self.test.name}/{self.protocol}", f"{self.dev.name}/{self.protocol}"
        return [f"{test}/spearman", f"{test}/pearson", f"{test}/mse", f"{dev}/spearman", f"{dev}/pearson"]

    def score(self, pool: EmbeddingPool, options: ScoringOptions) -> dict[str, Estimate]:
        """Return 100 x the correlations, and the mean squared error of the ratings, ``mse``."""
        train = batch_order(self.train)
        dev_gold = torch.from_numpy(self.dev.gold)
        dev_NF, test_NF = features(self.dev, pool), features(self.test, pool)
        regressor = fit(
            features(train, pool),
            tai_encoding(train.gold),
            lambda weight_5F: CORRELATIONS[self.select](predict(weight_5F, dev_NF), dev_gold).value,
            self.seed,
        )
        log.info(
            "%s: trained for %d epochs; the scores were best after %d epochs",
            self.name,
            regressor.epochs,
            regressor.best_epoch,
        )
        scores = {}
        for pairs, rows_NF in ((self.test, test_NF), (self.dev, dev_NF)):
            predicted_N, gold_N = predict(regressor.weight_5F, rows_NF), torch.from_numpy(pairs.gold)
            key = ScoreName.parse(pairs.name).without_form() if options.intervals else None
            prefix = f"{pairs.name}/{self.protocol}"
            scores[f"{prefix}/spearman"] = spearman(predicted_N, gold_N, key)
            scores[f"{prefix}/pearson"] = pearson(predicted_N, gold_N, key)
            scores[f"{prefix}/mse"] = mean((predicted_N - gold_N) ** 2, key, scale=1.0)
        return {name: scores[name] for name in self.score_names()}


def batch_order(pairs: RatedPairs) -> RatedPairs:
    """Return the order of pairs before shuffling, as in SentEval: by the number of words of the left and the right
    text, then by rating.
    """
    rows = sorted(
        range(len(pairs.gold)), key=lambda i: (len(pairs.left[i].split()), len(pairs.right[i].split()), pairs.gold[i])
    )
    return RatedPairs(
        pairs.name,
        [pairs.left[i] for i in rows],
        [pairs.right[i] for i in rows],
        pairs.gold[rows],
        [pairs.subsets[i] for i in rows],
    )


def features(pairs: RatedPairs, pool: EmbeddingPool) -> Tensor:
    """Return the features |a - b|, a * b, and a constant 1 of N pairs of embeddings a and b: (N, F). All are 0 for a
    pair with an embedding that is not finite.
    """
    left_ND, right_ND = pool.lookup(pairs.left), pool.lookup(pairs.right)
    ones_N1 = left_ND.new_ones(len(left_ND), 1)
    rows_NF = torch.cat([(left_ND - right_ND).abs(), left_ND * right_ND, ones_N1], 1)
    return finite_rows(rows_NF, pairs.name, "pairs have an embedding with NaN or infinity")


def tai_encoding(gold_N: np.ndarray) -> np.ndarray:
    """Encode N ratings from 0 to 5 as probabilities of 5 classes, (N, 5): 3.8 becomes 0.2 for class 3 and 0.8 for class
    4.

    There is no class 0. A rating below 1 keeps only its share of class 1, and a rating of 0 is a row of zeros. STS-B
    has such ratings, and SentEval trains on them in this form.
    """
    below_N = np.floor(gold_N)[:, None]
    above_N = gold_N[:, None] - below_N
    classes_5 = np.arange(1, RATINGS + 1)
    return np.where(classes_5 == below_N, 1 - above_N, 0.0) + np.where(classes_5 == below_N + 1, above_N, 0.0)


def predict(weight_5F: Tensor, rows_NF: Tensor) -> Tensor:
    """Return the predicted rating of each of N pairs, which is the mean of its class distribution, (N,) float64."""
    probabilities_N5 = torch.softmax(rows_NF @ weight_5F.T, 1)
    return probabilities_N5.double() @ torch.arange(1, RATINGS + 1, dtype=torch.float64)


class FittedRegressor(NamedTuple):
    """Weights of a regressor at the evaluation with its best score on the dev pairs."""

    weight_5F: Tensor
    best_epoch: int
    epochs: int  # total number of training epochs


def fit(rows_NF: Tensor, target_N5: np.ndarray, check: Callable[[Tensor], float], seed: int) -> FittedRegressor:
    """Train until ``check``, which scores the weights, has failed four times to exceed its highest score."""
    initial_5F = initial_layer(rows_NF.shape[1] - 1, RATINGS, torch.Generator().manual_seed(seed))
    trainer = _Trainer(rows_NF, target_N5, initial_5F.to(rows_NF.dtype))
    draws = np.random.RandomState(seed)  # random numbers of numpy.random.seed, as in SentEval's shuffling
    best, highest, failures, epochs = FittedRegressor(trainer.weight_5F.clone(), 0, 0), -math.inf, 0, 0
    while failures < MAX_FAILURES and epochs <= LAST_START:
        with one_thread():
            for _ in range(EPOCHS_PER_CHECK):
                trainer.epoch(draws.permutation(len(rows_NF)))
        epochs += EPOCHS_PER_CHECK
        value = check(trainer.weight_5F)
        if value > highest:
            best, highest = FittedRegressor(trainer.weight_5F.clone(), epochs, epochs), value
        else:
            failures += 1
    return best._replace(epochs=epochs)


def gradient_of_logits(logits_5B: np.ndarray, target_5B: np.ndarray) -> np.ndarray:
    """Return the gradient of mean((p - t)^2), where p = softmax(z), for the logits z, (5, B): p (d - sum(d p)) with d =
    2 (p - t) / (5 B).
    """
    p_5B = np.exp(logits_5B - logits_5B.max(0))
    p_5B /= p_5B.sum(0)
    d_5B = p_5B - target_5B
    d_5B -= (d_5B * p_5B).sum(0)
    d_5B *= p_5B
    d_5B *= 2 / d_5B.size
    return d_5B


class _Trainer:
    """Weights, Adam's state, and buffers of a training step, each as a tensor and as a NumPy array that share memory.

    Matmuls use torch, which is faster for thin matrices. Everything else uses NumPy, which has less overhead per call.
    """

    def __init__(self, rows_NF: Tensor, target_N5: np.ndarray, weight_5F: Tensor) -> None:
        self.rows_NF, self.weight_5F = rows_NF, weight_5F
        self.target_5N = np.ascontiguousarray(target_N5.T, dtype=rows_NF.numpy().dtype)
        self.batch_BF = rows_NF.new_empty(BATCH, rows_NF.shape[1])
        self.gradient_5F = torch.empty_like(weight_5F)
        self.first_5F, self.second_5F, self.scratch_5F = (np.zeros_like(weight_5F.numpy()) for _ in range(3))
        self.steps = 0

    def epoch(self, order_N: np.ndarray) -> None:
        """Train one epoch, with the pairs in the given order."""
        target_5N = self.target_5N[:, order_N]
        start = 0
        for picked_B in torch.from_numpy(order_N).split(BATCH):
            end = start + len(picked_B)
            batch_BF = self.batch_BF if len(picked_B) == BATCH else self.batch_BF[: len(picked_B)]
            torch.index_select(self.rows_NF, 0, picked_B, out=batch_BF)
            logits_5B = torch.mm(self.weight_5F, batch_BF.T).numpy()
            signal_5B = gradient_of_logits(logits_5B, target_5N[:, start:end])
            torch.mm(torch.from_numpy(signal_5B), batch_BF, out=self.gradient_5F)
            self._adam(self.gradient_5F.numpy(), self.weight_5F.numpy())
            start = end

    def _adam(self, gradient_5F: np.ndarray, weight_5F: np.ndarray) -> None:
        """Update the weights by Adam (Kingma and Ba 2015).

        The moments are stored as m / (1 - beta1) and v / (1 - beta2), which saves two passes over the data.
        """
        self.steps += 1
        corrected = math.sqrt((1 - BETA2) / (1 - BETA2**self.steps))
        rate = LEARNING_RATE * (1 - BETA1) / (1 - BETA1**self.steps) / corrected
        first_5F, second_5F, scratch_5F = self.first_5F, self.second_5F, self.scratch_5F
        np.multiply(first_5F, BETA1, out=first_5F)
        np.add(first_5F, gradient_5F, out=first_5F)
        np.multiply(gradient_5F, gradient_5F, out=scratch_5F)
        np.multiply(second_5F, BETA2, out=second_5F)
        np.add(second_5F, scratch_5F, out=second_5F)
        np.sqrt(second_5F, out=scratch_5F)
        np.add(scratch_5F, EPSILON / corrected, out=scratch_5F)
        np.divide(first_5F, scratch_5F, out=scratch_5F)
        np.multiply(scratch_5F, rate, out=scratch_5F)
        np.subtract(weight_5F, scratch_5F, out=weight_5F)


_SETS = {"stsb": (STSB, 0), "sickr": (SICK, 1)}  # prefix of the score names -> tables, and the lowest rating
# Protocol, and the correlation of the dev pairs for early stopping; the second is that of SimCSE's and GenSE's fork
PROTOCOLS = {"regressor": "pearson", "regressor-spearman": "spearman"}


def _read(base: str, protocol: str, root: Path, name: str, config: EvaluateConfig) -> Relatedness:
    rows, low = _SETS[base]
    form = SENTEVAL if name.endswith(SENTEVAL) else ""
    train, dev, test = (
        read_pairs(root, f"{base}{split}{form}", STSLayout({one: count}, low, 5))
        for split, (one, count) in zip(("-train", "-dev", ""), rows.items(), strict=True)
    )
    return Relatedness(name, train, dev, test, protocol, PROTOCOLS[protocol], config.seed)


ENTRIES = {
    f"{base}-{protocol}": TaskEntry(rows, partial(_read, base, protocol), senteval=True)
    for protocol in PROTOCOLS
    for base, (rows, _) in _SETS.items()
}
