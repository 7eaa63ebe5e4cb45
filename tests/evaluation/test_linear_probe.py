"""Truth: one classifier at a time, a torch module trained by torch.optim."""

import numpy as np
import pytest
import torch

from contrastive_encoders.evaluation.tasks.features import DenseFeatures
from contrastive_encoders.evaluation.tasks.linear_probe import ProbeSettings, Split, fit
from tests.evaluation.senteval_reference import Rules, train_alone

DEFAULT = ProbeSettings()
FAST = ProbeSettings("rmsprop", batch=128, tenacity=3, passes=2)
L2 = [1e-5, 1e-4, 1e-3, 1e-2]


def reference(x, y, classes, split, l2, settings):
    return train_alone(x, y, classes, (split.train_N, split.dev_N), split.drawn, l2, Rules(**settings._asdict()))


def problem(classes, items=230, width=9, seed=0, noise=1.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=items)
    centers = rng.standard_normal((classes, width))
    x = centers[y] + noise * rng.standard_normal((items, width))
    return torch.from_numpy(x), torch.from_numpy(y)


def random_splits(items, seed, sizes=(150, 151, 128, 129, 192)):
    """Make splits of several lengths, so that the last batches and the numbers of batches differ."""
    rng = np.random.default_rng(seed)
    orders = [torch.from_numpy(rng.permutation(items)) for _ in sizes]
    return [
        Split(order[:size], order[size:], drawn=items if number % 2 else 0)
        for number, (order, size) in enumerate(zip(orders, sizes, strict=True))
    ]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("classes", "settings"),
    [(2, DEFAULT), (6, DEFAULT), (3, FAST), (6, FAST), (3, DEFAULT._replace(hidden=5)), (2, FAST._replace(hidden=4))],
    ids=str,
)
def test_every_member_decides_as_if_it_were_trained_alone(classes, settings):
    x, y = problem(classes, seed=classes)
    splits = random_splits(len(x), classes)
    fits = fit(DenseFeatures(x), y, classes, splits, torch.tensor([L2] * len(splits), dtype=torch.float64), settings)
    everything = torch.arange(len(x))
    stops = set()
    for place, split in enumerate(splits):
        for member, l2 in enumerate(L2):
            best, model, looks = reference(x, y, classes, split, l2, settings)
            stops.add(looks)
            assert fits.accuracy_FR[place, member] == best
            with torch.no_grad():
                predicted = model(x).argmax(1)
            assert torch.equal(fits.predict(place, member, DenseFeatures(x), everything), predicted)
            assert torch.equal(fits.hits[place][member], (predicted == y)[split.dev_N])
    assert len(stops) > 1, "members must stop at different looks for this to say anything"


def test_training_ends_after_the_look_that_follows_the_last_allowed_pass():
    x, y = problem(2, items=600, noise=2.5, seed=5)
    splits = random_splits(len(x), 1, sizes=(150,))
    endless = DEFAULT._replace(tenacity=10**9, max_epoch=8)
    fits = fit(DenseFeatures(x), y, 2, splits, torch.tensor([[1e-3]], dtype=torch.float64), endless)
    best, _, looks = reference(x, y, 2, splits[0], 1e-3, endless)
    assert looks == 3  # after 4, 8 and 12 passes
    assert best > reference(x, y, 2, splits[0], 1e-3, endless._replace(max_epoch=4))[0], "the last look is the best"
    assert fits.accuracy_FR[0, 0] == best


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", [DEFAULT, FAST, DEFAULT._replace(hidden=5)], ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_gpu_decides_as_the_cpu(classes, settings):
    x, y = problem(classes, seed=classes)
    splits = random_splits(len(x), classes)
    l2 = torch.tensor([L2] * len(splits), dtype=torch.float64)
    here, there = (fit(DenseFeatures(x, device), y, classes, splits, l2, settings) for device in ("cpu", "cuda"))
    assert np.array_equal(here.accuracy_FR, there.accuracy_FR)
    for place in range(len(splits)):
        assert torch.equal(here.hits[place], there.hits[place])


def test_autocast_around_it_changes_nothing():
    x, y = problem(2, seed=9)
    splits = random_splits(len(x), 2, sizes=(150,))
    l2 = torch.tensor([L2], dtype=torch.float64)
    outside = fit(DenseFeatures(x.float()), y, 2, splits, l2, FAST)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = fit(DenseFeatures(x.float()), y, 2, splits, l2, FAST)
    assert torch.equal(outside.weights[0], inside.weights[0])
