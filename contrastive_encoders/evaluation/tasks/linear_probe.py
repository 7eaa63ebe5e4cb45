"""Train SentEval's classifiers for all regularization values and data splits in one batch.

The members of one split draw the same rows in the same order, because SentEval resets the seed for each classifier. So
a batch is gathered once per split and multiplied with the weights of all members. Initial weights, batch order,
updates, and early stopping are those of ``senteval/tools/classifier.py`` (Conneau and Kiela 2018), so that the
predictions in float64 are identical. Members that have stopped are removed from the batch.

Shape letters: F splits, G splits that are trained at a time, R classifiers on each split, B rows of a batch, T rows of
a pass (full batches), N items, E width of a feature row and its final 1.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_encoders.evaluation.tasks.features import Features
from contrastive_encoders.evaluation.tasks.probe_optimizers import OPTIMIZERS, Binary, Hidden, Softmax, one_thread

# On a CPU, the number of splits that are trained at a time is limited so that their batches stay in its cache from the
# logits to the gradients. It has a minimum, below which calling an operation takes longer than computing it.
CPU_BATCH_BYTES, MIN_SPLITS = 4 * 2**20, 4
DEV_ROWS = 4096  # rows scored at a time


class ProbeSettings(NamedTuple):
    """Training settings of a classifier."""

    optimizer: str = "adam"  # or "rmsprop"
    batch: int = 64
    tenacity: int = 5
    passes: int = 4  # passes over the training rows between two evaluations on the dev rows ("epoch_size")
    max_epoch: int = 200  # after more passes than this, no further evaluation follows
    hidden: int = 0
    seed: int = 1111


class Split(NamedTuple):
    """Row numbers of the training rows of a classifier, and of its rows for early stopping."""

    train_N: Tensor
    dev_N: Tensor
    drawn: int = 0  # length of the permutation that SentEval drew to make this split, before the first pass


class Fits(NamedTuple):
    """Trained classifiers, each with the weights at its best evaluation."""

    accuracy_FR: np.ndarray  # accuracy on the dev rows, 0 to 1
    hits: list[Tensor]  # for each split, (R, dev rows) bool on the CPU
    weights: list[Tensor]
    model: Softmax

    def predict(self, split: int, member: int, features: Features, rows_N: Tensor) -> Tensor:
        """Return the classes that a single classifier predicts for N rows, (N,), on the CPU."""
        weights = [weight[split : split + 1, member : member + 1] for weight in self.weights]
        return _predict(self.model, weights, features, rows_N)[0]


def fit(
    features: Features, labels_N: Tensor, classes: int, splits: Sequence[Split], l2_FR: Tensor, settings: ProbeSettings
) -> Fits:
    """Train a classifier for each of F splits and R regularization values.

    ``l2_FR`` (float64) is the weight decay of each, which also applies to the bias.
    """
    # Autocast may be enabled in a trainer that evaluates between its steps
    with one_thread(), torch.inference_mode(), torch.autocast(features.device.type, enabled=False):
        return _Training(features, labels_N, classes, splits, l2_FR, settings).run()


_Orders = dict[tuple[int, int], list[Tensor]]  # what was drawn and the number of rows -> their order in each pass


class _Training:
    def __init__(
        self,
        features: Features,
        labels_N: Tensor,
        classes: int,
        splits: Sequence[Split],
        l2_FR: Tensor,
        settings: ProbeSettings,
    ) -> None:
        self.features, self.labels_N, self.splits, self.settings = features, labels_N, splits, settings
        linear = Binary() if classes == 2 else Softmax(classes)
        self.model = Hidden(classes, settings.hidden) if settings.hidden else linear
        self.update, moments = OPTIMIZERS[settings.optimizer]
        self.l2_FR = l2_FR.to(features.device, features.dtype)
        start = self.model.initial(features.width - 1, torch.Generator().manual_seed(settings.seed))
        self.weights = [one.to(self.l2_FR).expand(*l2_FR.shape, *one.shape).clone() for one in start]
        self.moments = [[torch.zeros_like(one) for _ in range(moments)] for one in self.weights]
        self.best = [one.clone() for one in self.weights]
        self.hits = [torch.zeros(l2_FR.shape[1], len(split.dev_N), dtype=torch.bool) for split in splits]
        self.best_FR = np.full(tuple(l2_FR.shape), -1.0)
        self.failures_FR = np.zeros(tuple(l2_FR.shape), dtype=int)
        self.alive_FR = np.ones(tuple(l2_FR.shape), dtype=bool)
        # Order of the rows in each pass, drawn from NumPy's legacy generator as in SentEval; equal for splits of a kind
        self.kinds = [(split.drawn, len(split.train_N)) for split in splits]
        self.draws = {kind: np.random.RandomState(settings.seed) for kind in self.kinds}
        for (drawn, _), draws in self.draws.items():
            draws.permutation(drawn)

    def run(self) -> Fits:
        done = 0
        while self.alive_FR.any() and done <= self.settings.max_epoch:
            orders = {
                (drawn, rows): [torch.from_numpy(draws.permutation(rows)) for _ in range(self.settings.passes)]
                for (drawn, rows), draws in self.draws.items()
            }
            for splits_G, members_GR in self._groups():
                self._train(splits_G, members_GR, orders, done)
            done += self.settings.passes
        return Fits(self.best_FR, self.hits, self.best, self.model)

    def _groups(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield groups of G splits to train together, (G,), and the indices of the R classifiers (members) of each
        split, (G, R).

        The splits of a group have equal numbers of batches and similar numbers of active members. A split with fewer
        active members is padded with stopped members, whose results are ignored.
        """
        active_F = self.alive_FR.sum(1)
        steps_F = np.array([_steps(split, self.settings.batch) for split in self.splits])
        alive = [split for split in np.lexsort((active_F, steps_F)) if active_F[split]]
        row = self.features.width * self.features.dtype.itemsize
        in_cache = max(MIN_SPLITS, CPU_BATCH_BYTES // (self.settings.batch * row))
        max_splits = in_cache if self.features.device.type == "cpu" else len(self.splits)
        start = 0
        while start < len(alive):
            stop = start + 1
            while stop < len(alive) and stop - start < max_splits and steps_F[alive[stop]] == steps_F[alive[start]]:
                stop += 1
            splits_G = np.array(alive[start:stop])
            members = np.argsort(~self.alive_FR[splits_G], axis=1, kind="stable")[:, : active_F[splits_G].max()]
            yield splits_G, members
            start = stop

    def _train(self, splits_G: np.ndarray, members_GR: np.ndarray, orders: _Orders, done: int) -> None:
        """Train the classifiers ``members_GR`` of the splits ``splits_G`` for ``settings.passes`` epochs, then evaluate
        them on the dev rows.
        """
        place = (torch.from_numpy(splits_G)[:, None], torch.from_numpy(members_GR))
        weights = [one[place] for one in self.weights]
        moments = [[one[place] for one in pair] for pair in self.moments]
        l2 = self.l2_FR[place][:, :, None, None]
        steps = _steps(self.splits[splits_G[0]], self.settings.batch)
        for number in range(self.settings.passes):
            first = (done + number) * steps + 1
            batches = zip(*self._epoch(splits_G, orders, number, steps), strict=True)
            for count, (rows_GB, y_GB, share_GB) in enumerate(batches, start=first):
                gradients = self.model.gradients(weights, self.features.take(rows_GB), y_GB, share_GB)
                for weight, gradient, pair in zip(weights, gradients, moments, strict=True):
                    self.update(weight, gradient.addcmul_(weight, l2), pair, count)
        for full, part_G in zip(chain(self.weights, *self.moments), chain(weights, *moments), strict=True):
            full[place] = part_G
        self._evaluate(splits_G, members_GR, weights)

    def _epoch(self, splits_G: np.ndarray, orders: _Orders, number: int, steps: int) -> list[tuple[Tensor, ...]]:
        """Return the row numbers, labels, and row weights of all batches of an epoch. The last batch is padded."""
        batch = self.settings.batch
        rows_GT = torch.zeros(len(splits_G), steps * batch, dtype=torch.long)
        share_GT = torch.full(rows_GT.shape, 1.0 / batch, dtype=self.features.dtype)
        for place, split in enumerate(splits_G):
            train_N = self.splits[split].train_N
            rows_GT[place, : len(train_N)] = train_N[orders[self.kinds[split]][number]]
            share_GT[place, (steps - 1) * batch :] = 1.0 / (len(train_N) - (steps - 1) * batch)
            share_GT[place, len(train_N) :] = 0.0
        y_GT = self.labels_N[rows_GT]
        if isinstance(self.model, Binary):
            y_GT = y_GT.to(self.features.dtype)
        device, index_device = self.features.device, self.features.index_device
        tensors = rows_GT.to(index_device), y_GT.to(device), share_GT.to(device)
        return [one.view(len(splits_G), steps, batch).transpose(0, 1).contiguous().unbind(0) for one in tensors]

    def _evaluate(self, splits_G: np.ndarray, members_GR: np.ndarray, weights: Sequence[Tensor]) -> None:
        """Evaluate classifiers on the dev rows.

        Keep the weights of those that improved, and count a failure of the others.

        SentEval counts a failure whenever the accuracy does not rise and never resets the counter. It compares the
        counter before it increments it, so the (tenacity + 1)-th failure of the entire training ends it
        (classifier.py, fit).
        """
        for place, split in enumerate(splits_G):
            dev_N = self.splits[split].dev_N
            predicted_RN = _predict(self.model, [one[place : place + 1] for one in weights], self.features, dev_N)
            hits_RN = predicted_RN == self.labels_N[dev_N]
            for slot, member in enumerate(members_GR[place]):
                if not self.alive_FR[split, member]:
                    continue
                accuracy = int(hits_RN[slot].sum()) / len(dev_N)
                if accuracy > self.best_FR[split, member]:
                    self.best_FR[split, member] = accuracy
                    self.hits[split][member] = hits_RN[slot]
                    for best, current in zip(self.best, weights, strict=True):
                        best[split, member] = current[place, slot]
                else:
                    self.alive_FR[split, member] = self.failures_FR[split, member] < self.settings.tenacity
                    self.failures_FR[split, member] += 1


def _predict(model: Softmax, weights: Sequence[Tensor], features: Features, rows_N: Tensor) -> Tensor:
    """Return the classes that the R classifiers of one split predict for N rows, (R, N), on the CPU."""
    blocks = rows_N.to(features.index_device).split(DEV_ROWS)
    parts = [model.predict(weights, features.take(block[None]))[0].cpu() for block in blocks]
    return torch.cat(parts, dim=1)


def _steps(split: Split, batch: int) -> int:
    return -(-len(split.train_N) // batch)
