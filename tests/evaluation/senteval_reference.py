"""SentEval's classifiers one at a time: a torch module, torch.optim, autograd; slow and independent of the package.

The arithmetic, order and early stopping of ``senteval/tools/classifier.py`` and ``validation.py`` (Conneau and Kiela
2018), reimplemented. Tests compare decisions with it, and benchmarks.senteval_classifiers compares time.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

L2 = (1e-5, 1e-4, 1e-3, 1e-2)


class Rules(NamedTuple):
    optimizer: str = "adam"
    batch: int = 64
    tenacity: int = 5
    passes: int = 4
    max_epoch: int = 200
    hidden: int = 0
    seed: int = 1111


class Result(NamedTuple):
    dev: float
    test: float
    chosen: list[float]  # weight decay of each final training
    predicted: list[Tensor]  # on each test set


def module(width: int, classes: int, rules: Rules) -> nn.Sequential:
    if not rules.hidden:
        return nn.Sequential(nn.Linear(width, classes))
    return nn.Sequential(
        nn.Linear(width, rules.hidden), nn.Dropout(0.0), nn.Sigmoid(), nn.Linear(rules.hidden, classes)
    )


def train_alone(
    x: Tensor, y: Tensor, classes: int, rows: tuple[Tensor, Tensor], drawn: int, l2: float, rules: Rules
) -> tuple[float, nn.Sequential, int]:
    """Return (best accuracy on the dev rows, its model, number of evaluations); ``rows``: train, dev."""
    rng = np.random.RandomState(rules.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rules.seed)
        model = module(x.shape[1], classes, rules).to(x.dtype)
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[rules.optimizer]
    optimizer, loss = kind(model.parameters(), weight_decay=l2), nn.CrossEntropyLoss()
    if drawn:
        rng.permutation(drawn)
    train_x, train_y, dev_x, dev_y = x[rows[0]], y[rows[0]], x[rows[1]], y[rows[1]]
    epoch, best, failures, looks, stop = 0, -1.0, 0, 0, False
    kept = model
    while not stop and epoch <= rules.max_epoch:
        for _ in range(rules.passes):
            order = torch.from_numpy(rng.permutation(len(train_x)))
            for start in range(0, len(order), rules.batch):
                batch = order[start : start + rules.batch]
                cost = loss(model(train_x.index_select(0, batch)), train_y.index_select(0, batch))
                cost.item()  # SentEval records it
                optimizer.zero_grad()
                cost.backward()
                optimizer.step()
        epoch += rules.passes
        looks += 1
        accuracy = right(model, dev_x, dev_y, rules.batch) / len(dev_y)
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        else:
            stop = failures >= rules.tenacity
            failures += 1
    return best, kept, looks


def right(model: nn.Module, x: Tensor, y: Tensor, batch: int) -> int:
    with torch.no_grad():
        blocks = zip(x.split(batch), y.split(batch), strict=True)
        return sum(int((model(rows).argmax(1) == gold).sum()) for rows, gold in blocks)


def predict(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).argmax(1)


def folds_of(y: Tensor, folds: int) -> list[tuple[Tensor, Tensor]]:
    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=1111)
    pairs = splitter.split(np.zeros(len(y)), y.numpy())
    return [(torch.from_numpy(train), torch.from_numpy(test)) for train, test in pairs]


def train_whole(x: Tensor, y: Tensor, classes: int, l2: float, rules: Rules) -> nn.Sequential:
    """Train on all rows except 5 %, which are used for early stopping."""
    order = np.random.RandomState(rules.seed).permutation(len(x))
    held = int(0.05 * len(x))
    rows = torch.from_numpy(order[held:]), torch.from_numpy(order[:held])
    return train_alone(x, y, classes, rows, len(x), l2, rules)[1]


def choose(x: Tensor, y: Tensor, classes: int, folds: int, rules: Rules) -> tuple[float, float]:
    """Choose by cross-validation; return (weight decay, mean accuracy over folds in percent)."""
    scores = []
    for l2 in L2:
        parts = [train_alone(x, y, classes, rows, 0, l2, rules)[0] for rows in folds_of(y, folds)]
        scores.append(round(100 * np.mean(parts), 2))
    return L2[int(np.argmax(scores))], float(np.max(scores))


def nested(x: Tensor, y: Tensor, classes: int, folds: int, rules: Rules, only: Sequence[int] | None = None) -> Result:
    """Run nested cross-validation; ``only`` limits it to these outer folds, for fast benchmarks."""
    chosen, devs, tests, predicted = [], [], [], []
    for number, (train, test) in enumerate(folds_of(y, folds)):
        if only is not None and number not in only:
            continue
        l2, dev = choose(x[train], y[train], classes, folds, rules)
        predicted.append(predict(train_whole(x[train], y[train], classes, l2, rules), x[test]))
        chosen.append(l2)
        devs.append(dev)
        tests.append(round(100 * (int((predicted[-1] == y[test]).sum()) / len(test)), 2))
    return Result(float(round(np.mean(devs), 2)), float(round(np.mean(tests), 2)), chosen, predicted)


def kfold(x: Tensor, y: Tensor, test: tuple[Tensor, Tensor], classes: int, folds: int, rules: Rules) -> Result:
    l2, dev = choose(x, y, classes, folds, rules)
    predicted = predict(train_whole(x, y, classes, l2, rules), test[0])
    return Result(dev, _accuracy(predicted, test[1]), [l2], [predicted])


def given(
    train: tuple[Tensor, Tensor], dev: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], classes: int, rules: Rules
) -> Result:
    """Choose on the development set, then train the chosen classifier a second time, as SentEval does."""
    x, y = torch.cat([train[0], dev[0]]), torch.cat([train[1], dev[1]])
    rows = torch.arange(len(train[0])), torch.arange(len(train[0]), len(x))
    scores = [round(100 * train_alone(x, y, classes, rows, 0, l2, rules)[0], 2) for l2 in L2]
    l2 = L2[int(np.argmax(scores))]
    predicted = predict(train_alone(x, y, classes, rows, 0, l2, rules)[1], test[0])
    return Result(float(np.max(scores)), _accuracy(predicted, test[1]), [l2], [predicted])


def _accuracy(predicted: Tensor, gold: Tensor) -> float:
    return round(100 * (int((predicted == gold).sum()) / len(gold)), 2)
