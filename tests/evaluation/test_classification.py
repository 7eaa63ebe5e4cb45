"""Truth: SentEval's schemes with one classifier at a time, in float64 on small sizes; scikit-learn for the rest."""

import re

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.embedding_pool import EmbeddingPool
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.task import ScoringOptions
from contrastive_encoders.evaluation.tasks.classification import (
    Classification,
    ClassificationSpec,
    LabeledSplit,
    _Rows,
    best,
)
from contrastive_encoders.evaluation.tasks.features import DenseFeatures
from tests.evaluation import senteval_reference
from tests.evaluation.senteval_reference import Rules

RULES = {"default": Rules(), "fast": Rules("rmsprop", 128, 3, 2)}
FOLDS = {"default": 10, "fast": 5}
CPU = torch.device("cpu")


class World:
    """Texts whose embeddings indicate their class, with noise."""

    def __init__(self, classes, width=6, seed=0, noise=1.6):
        self.classes, self.width, self.noise, self.rng = classes, width, noise, np.random.default_rng(seed)
        self.centers = self.rng.standard_normal((classes, width))
        self.rows, self.row_of = [], {}

    def part(self, name, items, sides=1):
        labels = np.tile(np.arange(self.classes), items)[:items]
        texts = tuple(
            [self._text(f"{name} {side} {n}", label) for n, label in enumerate(labels)] for side in range(sides)
        )
        return LabeledSplit(f"{name}.tsv", texts, labels)

    def _text(self, text, label):
        self.row_of[text] = len(self.rows)
        self.rows.append(self.centers[label] + self.noise * self.rng.standard_normal(self.width))
        return text

    @property
    def pool(self):
        """Return float64 embeddings, so that the decisions can be compared."""
        return EmbeddingPool(self.row_of, torch.from_numpy(np.array(self.rows)))

    def pair(self, part):
        return self.pool.lookup(part.sides[0]), torch.from_numpy(part.labels_N)


def task(name, parts, protocol, classes, recipe=None, nhid=0):
    names = [str(number) for number in range(classes)]
    return Classification(
        name, recipe or ClassificationSpec(), names, parts, EvaluateConfig(protocol=protocol, nhid=nhid)
    )


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("protocol", "folds", "items", "nhid"), [("default", 3, 130, 0), ("fast", 5, 160, 0), ("fast", 4, 90, 3)]
)
def test_nested_folds_decide_as_the_original(protocol, folds, items, nhid):
    world = World(2, seed=1)
    part = world.part("all", items)
    one = task("mr", {"all": part}, protocol, 2, nhid=nhid)
    assert one.folds == FOLDS[protocol]
    one.folds = folds  # the original loop over ten times ten folds takes too long here
    found = one.score(world.pool, ScoringOptions(CPU, intervals=False))
    rules = RULES[protocol]._replace(hidden=nhid)
    truth = senteval_reference.nested(*world.pair(part), 2, folds, rules)
    assert found[f"mr/{protocol}/accuracy"].value == truth.test
    assert found[f"mr-dev/{protocol}/accuracy"].value == truth.dev


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("protocol", "classes", "sizes"),
    [
        ("default", 2, {"train": 160, "test": 71}),
        ("fast", 3, {"train": 160, "test": 71}),
        ("default", 5, {"train": 200, "dev": 60, "test": 77}),
        ("fast", 2, {"train": 200, "dev": 60, "test": 77}),
    ],
)
def test_folds_of_train_and_given_splits_decide_as_the_original(protocol, classes, sizes):
    world, rules = World(classes, seed=len(sizes)), RULES[protocol]
    parts = {name: world.part(name, items) for name, items in sizes.items()}
    found = task("sst", parts, protocol, classes).score(world.pool, ScoringOptions())
    train, *dev, test = (world.pair(part) for part in parts.values())
    if dev:
        truth = senteval_reference.given(train, *dev, test, classes, rules)
    else:
        truth = senteval_reference.kfold(*train, test, classes, FOLDS[protocol], rules)
    assert found[f"sst/{protocol}/accuracy"].value == truth.test
    assert found[f"sst-dev/{protocol}/accuracy"].value == truth.dev


def test_pairs_and_f1():
    world = World(2, seed=4)
    train, test = world.part("train", 120, sides=2), world.part("test", 61, sides=2)

    def features(part):
        a, b = (world.pool.lookup(side) for side in part.sides)
        return torch.cat([torch.abs(a - b), a * b], 1), torch.from_numpy(part.labels_N)

    found = task("mrpc", {"train": train, "test": test}, "fast", 2, ClassificationSpec("pair", f1=True)).score(
        world.pool, ScoringOptions()
    )
    truth = senteval_reference.kfold(*features(train), features(test), 2, 5, RULES["fast"])
    assert found["mrpc/fast/accuracy"].value == truth.test
    assert found["mrpc/fast/f1"].value == pytest.approx(100 * f1_score(test.labels_N, truth.predicted[0]), abs=0.0051)


def test_snli_has_one_weak_regularization_and_its_own_settings():
    world = World(3, width=4, seed=6)
    parts = {name: world.part(name, items, sides=2) for name, items in (("train", 150), ("dev", 60), ("test", 66))}
    recipe = ClassificationSpec("inference", changes={"max_epoch": 15, "passes": 1}, regularized=False)
    found = task("snli", parts, "default", 3, recipe).score(world.pool, ScoringOptions())

    def features(part):
        a, b = (world.pool.lookup(side) for side in part.sides)
        return torch.cat([a, b, a * b, torch.abs(a - b)], 1)

    x = torch.cat([features(part) for part in parts.values()])
    y = torch.from_numpy(np.concatenate([part.labels_N for part in parts.values()]))
    rows = torch.arange(150), torch.arange(150, 210)
    rules = Rules(passes=1, max_epoch=15)
    dev, model, _ = senteval_reference.train_alone(x, y, 3, rows, 0, 1e-9, rules)
    right = senteval_reference.right(model, x[210:], y[210:], 64)
    assert found["snli-dev/default/accuracy"].value == round(100 * dev, 2)
    assert found["snli/default/accuracy"].value == round(100 * right / 66, 2)


@pytest.mark.slow
def test_sklearn_nested():
    world = World(2, seed=7)
    part = world.part("all", 130)
    x, y = world.pool.lookup(part.sides[0]).numpy(), part.labels_N
    folds = StratifiedKFold(10, shuffle=True, random_state=1111)
    tests, devs = [], []
    for train, test in folds.split(x, y):
        scores = []
        for power in range(-2, 4):
            inner = folds.split(x[train], y[train])
            fits = [
                LogisticRegression(C=2.0**power).fit(x[train][a], y[train][a]).score(x[train][b], y[train][b])
                for a, b in inner
            ]
            scores.append(round(100 * np.mean(fits), 2))
        c = 2.0 ** (int(np.argmax(scores)) - 2)
        devs.append(max(scores))
        tests.append(round(100 * LogisticRegression(C=c).fit(x[train], y[train]).score(x[test], y[test]), 2))
    found = task("mr", {"all": part}, "sklearn", 2).score(world.pool, ScoringOptions(CPU, intervals=False))
    assert found["mr/sklearn/accuracy"].value == pytest.approx(np.mean(tests), abs=0.0051)
    assert found["mr-dev/sklearn/accuracy"].value == pytest.approx(np.mean(devs), abs=0.0051)


def test_sklearn_on_test_sets_uses_all_of_train():
    world = World(3, seed=8)
    train, dev, test = (world.part(name, 70) for name in ("train", "dev", "test"))
    x, y = world.pool.lookup(train.sides[0]), train.labels_N
    given = task("sst5", {"train": train, "dev": dev, "test": test}, "sklearn", 3).score(world.pool, ScoringOptions())
    models = [LogisticRegression(C=2.0**power).fit(x, y) for power in range(-2, 4)]
    scores = [round(100 * model.score(world.pool.lookup(dev.sides[0]), dev.labels_N), 2) for model in models]
    truth = models[int(np.argmax(scores))].score(world.pool.lookup(test.sides[0]), test.labels_N)
    assert given["sst5-dev/sklearn/accuracy"].value == max(scores)
    assert given["sst5/sklearn/accuracy"].value == pytest.approx(100 * truth, abs=0.0051)


def test_equal_to_two_decimals_is_a_tie_and_the_first_wins():
    assert best(np.array([[0.50001, 0.50002, 0.3]])) == (0, 50.0)
    assert best(np.array([[0.5001, 0.5002, 0.3]]))[0] == 1


@pytest.mark.parametrize(
    "parts", [{"all": 60}, {"train": 50, "test": 40}, {"train": 50, "dev": 30, "test": 40}], ids=str
)
def test_every_score_has_an_interval_around_it(parts):
    world = World(2, seed=9)
    one = task("mr@senteval", {name: world.part(name, size) for name, size in parts.items()}, "fast", 2)
    found = one.score(world.pool, ScoringOptions())
    assert list(found) == one.score_names() == ["mr@senteval/fast/accuracy", "mr-dev@senteval/fast/accuracy"]
    for estimate in found.values():
        low, high = estimate.interval()
        assert low < estimate.value < high
    # the items' values average to the score, which the original rounds
    labels_N = np.concatenate([part.labels_N for part in one.parts.values()])
    outcome = one._outcome(_Rows(DenseFeatures(world.pool.vectors_UD), labels_N, 2))
    assert 100 * float(outcome.dev_N.mean()) == pytest.approx(outcome.dev, abs=0.011)
    assert 100 * float(outcome.test_N.mean()) == pytest.approx(outcome.test, abs=0.011)
    assert all(one.replicates_R is None for one in one.score(world.pool, ScoringOptions(intervals=False)).values())


def test_nothing_of_the_global_generators_is_used_or_moved():
    world = World(2, seed=10)
    one = task("mr", {"all": world.part("all", 60)}, "fast", 2)
    found = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
        found.append({name: e.value for name, e in one.score(world.pool, ScoringOptions()).items()})
        assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[1])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("counts", "protocol", "found", "minimum"),
    [
        ({"all": [40, 11]}, "default", [11, 1], 12),
        ({"train": [40, 9], "test": [5, 5]}, "default", [9, 1], 10),
        ({"train": [8, 8], "test": [5, 5]}, "fast", [16], 20),
        ({"train": [8, 8], "dev": [0, 0], "test": [5, 5]}, "fast", [], None),
    ],
)
def test_too_few_rows_are_refused(counts, protocol, found, minimum):
    parts = {}
    for name, (zeros, ones) in counts.items():
        texts = [f"{name} {n}" for n in range(zeros + ones)]
        parts[name] = LabeledSplit("x.tsv", (texts,), np.array([0] * zeros + [1] * ones, dtype=np.int64))
    with pytest.raises(InputError) as refused:
        task("mr", parts, protocol, 2)
    assert refused.value.location == "x.tsv"
    assert list(map(int, re.findall(r"\d+", refused.value.value))) == found
    assert next(map(int, re.findall(r"\d+", refused.value.expected)), None) == minimum


def test_no_hidden_units_for_scikit_learn_nor_where_a_task_forbids_them():
    world = World(2)
    parts = {"all": world.part("all", 60)}
    with pytest.raises(InputError) as refused:
        task("mr", parts, "sklearn", 2, nhid=3)
    assert (refused.value.key, refused.value.value) == ("nhid", 3)
    one = task("wordcontent", parts, "default", 2, ClassificationSpec(linear_only=True), nhid=3)
    assert one.trainer.settings.hidden == 0


@pytest.mark.parametrize("protocol", ["fast", "sklearn"])
@pytest.mark.parametrize("combination", ["sentence", "pair", "inference"])
def test_vectors_that_are_not_finite_count_as_zeros(protocol, combination, caplog):
    world = World(2, seed=11)
    sides = 1 if combination == "sentence" else 2
    parts = {name: world.part(name, 40, sides) for name in ("train", "dev", "test")}
    one, pool = task("sst2", parts, protocol, 2, ClassificationSpec(combination)), world.pool
    pool.vectors_UD[3] = float("nan")
    pool.vectors_UD[50, 2] = float("inf")
    found = one.score(pool, ScoringOptions())
    assert "NaN" in caplog.text
    pool.vectors_UD[[3, 50]] = 0.0
    assert {name: e.value for name, e in found.items()} == {
        name: e.value for name, e in one.score(pool, ScoringOptions()).items()
    }
