"""The supervised relatedness regressor against modules, autograd and optimizers of torch, and against real data."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor, nn

from contrastive_encoders.core import RatedPairs
from contrastive_encoders.evaluation.embedding_pool import embed_pool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.relatedness import (
    ENTRIES,
    Relatedness,
    batch_order,
    features,
    fit,
    predict,
    tai_encoding,
)
from tests.embedders import OnTheCPU

CPU = torch.device("cpu")


def pairs_of(count: int, seed: int, low: float = 0.0) -> RatedPairs:
    """Make sentences of unequal length, rated by their overlap, on a grid so that there are ties."""
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(30)]
    left, right, gold = [], [], []
    for _ in range(count):
        size, shared = int(rng.integers(2, 9)), rng.uniform()
        a = list(rng.choice(words, size=size))
        b = [word if rng.uniform() < shared else str(rng.choice(words)) for word in a][: int(rng.integers(1, 9))]
        left.append(" ".join(a))
        right.append(" ".join(b))
        gold.append(float(np.clip(np.round(5 * shared + rng.normal(0, 0.5), 1), low, 5)))
    return RatedPairs("pairs", left, right, np.array(gold), ["pairs"] * count)


def slow_encoding(rating: float) -> list[float]:
    """Compute Tai et al. 2015, equation 14, with no class below 1."""
    row = [0.0] * 5
    whole = int(rating)
    if whole >= 1:
        row[whole - 1] = whole - rating + 1
    if whole < 5:
        row[whole] = rating - whole
    return row


def slow_fit(
    train: RatedPairs, dev: RatedPairs, embed: Callable, select: Callable, seed: int, checks: list[int]
) -> nn.Module:
    """Run the protocol with modules, autograd, an optimizer and global seeds, in float64."""
    order = sorted(
        zip(train.left, train.right, train.gold, strict=True),
        key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]),
    )
    a, b = embed([row[0] for row in order]), embed([row[1] for row in order])
    x, y = torch.cat([(a - b).abs(), a * b], 1), torch.tensor([slow_encoding(row[2]) for row in order]).double()
    da, db = embed(dev.left), embed(dev.right)
    dev_x = torch.cat([(da - db).abs(), da * db], 1)
    torch.manual_seed(seed)
    rng = np.random.RandomState(seed)
    model = nn.Sequential(nn.Linear(x.shape[1], 5), nn.Softmax(dim=1)).double()
    optimizer = torch.optim.Adam(model.parameters())
    best, kept, failures, epoch, stop = -1.0, None, 0, 0, False
    while not stop and epoch <= 1000:
        for _ in range(50):
            shuffled = rng.permutation(len(x))
            for start in range(0, len(x), 64):
                rows = torch.from_numpy(shuffled[start : start + 64])
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
        epoch += 50
        with torch.no_grad():
            value = select(slow_predict(model, dev_x), dev.gold)[0]
        if value > best:
            best, kept = value, copy.deepcopy(model)
        else:
            stop = failures >= 3
            failures += 1
    checks.append(epoch)
    assert kept is not None
    return kept


def slow_predict(model: nn.Module, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        return np.dot(model(x).numpy(), np.arange(1, 6))


class Doubles(OnTheCPU):
    """An embedder with float64 rows, given to both the reference and the task."""

    def __init__(self, width: int) -> None:
        self.width = width

    def embed(self, texts: list[str], **_: object) -> Tensor:
        def word(text: str) -> np.ndarray:
            return np.random.default_rng(sum(map(ord, text))).standard_normal(self.width)

        return torch.from_numpy(np.stack([np.mean([word(w) for w in text.split()], 0) for text in texts]))


def double_pool(embedder: Doubles, *sets: RatedPairs):
    pool = embed_pool(embedder, [texts for pairs in sets for texts in (pairs.left, pairs.right)])
    vectors = embedder.embed(list(pool.row_of))
    return pool._replace(vectors_UD=vectors)


@pytest.mark.parametrize(("select", "oracle"), [("pearson", pearsonr), ("spearman", spearmanr)])
def test_equals_modules_and_optimizer_in_float64(select, oracle):
    """Initial weights, batches and early stopping are equal, so the predicted ratings are equal."""
    train, dev, test = (
        pairs._replace(name=name)
        for pairs, name in zip(
            (pairs_of(150, 1), pairs_of(40, 2), pairs_of(50, 3)), ("toy-train", "toy-dev", "toy"), strict=True
        )
    )
    embedder = Doubles(6)
    pool = double_pool(embedder, train, dev, test)
    checks: list[int] = []
    model = slow_fit(train, dev, embedder.embed, oracle, seed=1111, checks=checks)
    a, b = embedder.embed(test.left), embedder.embed(test.right)
    wanted = slow_predict(model, torch.cat([(a - b).abs(), a * b], 1))

    ordered, dev_rows = batch_order(train), features(dev, pool)
    fitted = fit(
        features(ordered, pool),
        tai_encoding(ordered.gold),
        lambda weight: float(oracle(predict(weight, dev_rows), dev.gold)[0]),
        seed=1111,
    )
    assert fitted.epochs == checks[0]
    np.testing.assert_allclose(predict(fitted.weight_5F, features(test, pool)), wanted, rtol=0, atol=1e-10)

    scores = Relatedness("toy-regressor", train, dev, test, select=select).score(
        pool, ScoringOptions(CPU, intervals=True)
    )
    assert scores["toy/regressor/spearman"].value == pytest.approx(100 * spearmanr(wanted, test.gold)[0], abs=1e-5)
    assert scores["toy/regressor/pearson"].value == pytest.approx(100 * pearsonr(wanted, test.gold)[0], abs=1e-5)
    assert scores["toy/regressor/mse"].value == pytest.approx(np.mean((wanted - test.gold) ** 2), abs=1e-9)
    low, high = scores["toy/regressor/spearman"].interval()
    assert low < scores["toy/regressor/spearman"].value < high


def test_stops_at_the_fourth_failure_and_keeps_the_best():
    rows, target = torch.randn(10, 3), np.full((10, 5), 0.2)
    values = iter([0.1, 0.5, 0.4, 0.5, 0.6, 0.6, 0.2, 0.9])  # failures at 3, 4, 6 and 7: never reset, ties count
    seen = []

    def check(weight: Tensor) -> float:
        seen.append(weight.clone())
        return next(values)

    fitted = fit(rows, target, check, seed=5)
    assert (len(seen), fitted.epochs, fitted.best_epoch) == (7, 350, 250)
    assert torch.equal(fitted.weight_5F, seen[4])
    assert not torch.equal(fitted.weight_5F, seen[6])


def write(root, folder, counts, ending=".tsv", low=0.0):
    for seed, (split, count) in enumerate(counts.items()):
        pairs = pairs_of(count, seed, low)
        lines = ["sentence1\tsentence2\tscore"]
        lines += [f"{a}\t{b}\t{y:g}" for a, b, y in zip(pairs.left, pairs.right, pairs.gold, strict=True)]
        (root / folder).mkdir(exist_ok=True)
        (root / folder / f"{split}{ending}").write_text("\n".join(lines) + "\n")


def test_reads_both_sets_and_both_forms_of_text(tmp_path, bag_of_words):
    counts = {"train": 70, "dev": 20, "test": 21}
    write(tmp_path, "STSBenchmark", counts)
    write(tmp_path, "STSBenchmark", counts, ".senteval.tsv")
    write(tmp_path, "SICK", counts, low=1.0)
    for name, begin in {
        "stsb-regressor": "stsb/regressor",
        "stsb-regressor@senteval": "stsb@senteval/regressor",
        "sickr-regressor": "sickr/regressor",
        "stsb-regressor-spearman": "stsb/regressor-spearman",
    }.items():
        task = ENTRIES[name.removesuffix("@senteval")].read(tmp_path, name, EvaluateConfig(seed=7))
        assert (len(task.train.gold), len(task.dev.gold), len(task.test.gold)) == (70, 20, 21)
        assert (task.name, task.seed) == (name, 7)
        assert task.select == ("spearman" if "-spearman" in name else "pearson")
        scores = task.score(embed_pool(bag_of_words, task.texts()), ScoringOptions(CPU))
        assert list(scores) == task.score_names()
        assert f"{begin}/spearman" in scores
        assert begin.replace("/", "-dev/", 1).replace("@senteval-dev", "-dev@senteval") + "/pearson" in scores
    assert all(entry.senteval for entry in ENTRIES.values())


def test_official_numbers_of_rows(real_data):
    for name, entry in ENTRIES.items():
        task = entry.read(real_data, name, EvaluateConfig())
        assert [len(pairs.gold) for pairs in (task.train, task.dev, task.test)] == list(entry.rows.values())
