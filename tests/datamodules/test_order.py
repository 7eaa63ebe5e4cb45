"""The order of examples: a bijection, well mixed, with the same batches on any number of ranks."""

import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sampling.example_order import (
    ExampleOrder,
    NestedSubset,
    Permutation,
)


@given(n=st.integers(1, 5000), seed=st.integers(0, 2**32), epoch=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_every_example_has_one_place(n, seed, epoch):
    assert np.array_equal(np.sort(Permutation(n, seed, epoch)[np.arange(n)]), np.arange(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 9, 10, 16, 17, 10_000, 99_999])
def test_every_example_has_one_place_at_the_edges_of_the_domain(n):
    assert np.array_equal(np.sort(Permutation(n, 7, 0)[np.arange(n)]), np.arange(n))


def test_large_sets_are_reached_at_random_places():
    permutation = Permutation(61_000_000, 1, 3)
    places = np.random.default_rng(0).choice(61_000_000, size=10_000, replace=False)
    examples = permutation[places]
    assert len(set(examples.tolist())) == 10_000
    assert examples.min() >= 0
    assert examples.max() < 61_000_000
    one_by_one = np.concatenate([permutation[places[i : i + 1]] for i in range(100)])
    assert np.array_equal(one_by_one, examples[:100])


def test_neighbors_land_apart():
    n = 100_003
    order = Permutation(n, 11, 0)[np.arange(n)].astype(float)
    bound = 4 / np.sqrt(n)
    for lag in (1, 2, 3, 316, 317, 318):  # 317 is the side of the Feistel square
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < bound
    assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < bound
    steps = np.bincount(((order[1:] - order[:-1]) % n * 64 // n).astype(int), minlength=64)
    assert stats.chisquare(steps).pvalue > 1e-4


def test_all_orders_of_a_few_examples_are_about_equally_frequent():
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(Permutation(4, seed, 0)[np.arange(4)].tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_epochs_and_seeds_differ_and_consecutive_ones_are_uncorrelated():
    n = 20_000
    orders = [Permutation(n, seed, epoch)[np.arange(n)] for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1))]
    correlations = np.corrcoef(np.array(orders, dtype=float))[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(n)


@given(n=st.integers(1, 2000), seed=st.integers(0, 99), fractions=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)))
@settings(max_examples=60, deadline=None)
def test_a_smaller_fraction_lies_inside_a_larger_one(n, seed, fractions):
    small, large = (NestedSubset(n, fraction, seed) for fraction in sorted(fractions))
    small_rows, large_rows = (set(subset[np.arange(len(subset))].tolist()) for subset in (small, large))
    assert small_rows <= large_rows <= set(range(n))
    assert len(small_rows) == max(1, round(n * min(fractions)))


@given(examples=st.integers(6, 500), factor=st.integers(1, 20), epoch=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_batch_is_the_same_set_on_one_two_and_three_ranks(examples, factor, epoch):
    batch_size = min(6 * factor, examples // 6 * 6)
    single = ExampleOrder(examples, batch_size, seed=3)
    for world in (2, 3):
        ranks = [ExampleOrder(examples, batch_size, seed=3, rank=rank, world=world) for rank in range(world)]
        for k in range(len(single)):
            shares = [rank.batch(epoch, k) for rank in ranks]
            assert {len(share) for share in shares} == {batch_size // world}
            assert np.array_equal(np.stack(shares, 1).reshape(-1), single.batch(epoch, k))


@pytest.mark.parametrize("world", [1, 2])
def test_the_last_batch_may_be_smaller(world):
    """A pass contains every example once; the rest is distributed as evenly as the others."""
    ranks = [ExampleOrder(106, 12, seed=0, rank=rank, world=world, drop_last=False) for rank in range(world)]
    batches = [np.stack([rank.batch(4, k) for rank in ranks], 1).reshape(-1) for k in range(len(ranks[0]))]
    assert [len(batch) for batch in batches] == [12] * 8 + [10]
    assert sorted(np.concatenate(batches)) == list(range(106))
    assert np.array_equal(batches[3], ExampleOrder(106, 12, seed=0).batch(4, 3))
    with pytest.raises(InputError) as error:
        ExampleOrder(106, 12, seed=0, world=3, drop_last=False)
    assert (error.value.key, error.value.value) == ("data.drop_last", False)
    assert re.findall(r"\d+", error.value.expected) == ["10", "3"]
    with pytest.raises(InputError) as error:
        ExampleOrder(7, 7, seed=0, world=3, drop_last=False)
    assert (error.value.key, error.value.value) == ("data.drop_last", False), "7 rows do not split evenly over 3"


@pytest.mark.parametrize(
    ("examples", "batch_size", "world", "expected", "advised"),
    [
        (100, 10, 3, ["3"], ["9", "12"]),
        (100, 128, 2, ["100"], ["100"]),
    ],
)
def test_an_impossible_batch_size_is_refused(examples, batch_size, world, expected, advised):
    with pytest.raises(InputError) as error:
        ExampleOrder(examples, batch_size, seed=0, world=world)
    assert (error.value.key, error.value.value) == ("batch_size", batch_size)
    assert re.findall(r"\d+", error.value.expected) == expected
    assert re.findall(r"\d+", error.value.hint) == advised


def test_the_first_and_the_last_batch_of_61_million_need_no_array_of_them():
    tracemalloc.start()
    order = ExampleOrder(61_000_000, 1_024, seed=1)
    first, last = order.batch(7, 0), order.batch(7, len(order) - 1)
    (_, peak) = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len({*first, *last}) == len(first) + len(last) == 2_048
    assert peak < 2**20  # one bit for each would be 7.6 MB
