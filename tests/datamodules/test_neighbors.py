"""Batches of neighbors: groups of rows whose first texts are near each other in an encoder."""

import itertools

import numpy as np
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sampling import neighbor_groups
from contrastive_encoders.datamodules.sampling.example_order import ExampleOrder
from contrastive_encoders.datamodules.sampling.neighbor_groups import find_neighbor_groups, rows_to_group
from tests.data import as_rank, batches, data_module, write_rows


def test_the_first_row_that_is_left_takes_along_the_nearest():
    """The truth is the cosine of one pair of rows at a time."""
    vectors = np.random.default_rng(3).normal(size=(30, 5))
    texts = [np.arange(30), np.arange(30)]
    left = list(range(30))
    groups = find_neighbor_groups(vectors, texts, 8)
    for group in groups:
        first, *others = group.tolist()
        assert first == left[0]

        def cosine(row, first=first):
            one, other = vectors[first], vectors[row]
            return one @ other / np.sqrt(one @ one) / np.sqrt(other @ other)

        assert others == sorted(left[1:], key=cosine, reverse=True)[:7]
        left = [row for row in left if row not in group]
    assert [len(group) for group in groups] == [8, 8, 8, 6]


def test_rows_of_a_group_share_no_text_and_none_is_lost():
    rng = np.random.default_rng(4)
    vectors, texts = rng.normal(size=(200, 3)), [rng.integers(0, 60, 200), rng.integers(0, 40, 200)]
    groups = find_neighbor_groups(vectors, texts, 16)
    assert sorted(np.concatenate(groups).tolist()) == list(range(200))
    for group, numbers in itertools.product(groups, texts):
        assert len(set(numbers[group].tolist())) == len(group)


def test_of_many_rows_neighbors_are_those_of_a_block(monkeypatch):
    """The time grows with the square of the block size alone; each block is grouped as if it were all rows."""
    vectors = np.random.default_rng(4).normal(size=(70, 6))
    texts = [np.arange(70)]
    blocks = [
        find_neighbor_groups(vectors[first : first + 30], [np.arange(70)[first : first + 30]], 8)
        for first in (0, 30, 60)
    ]
    monkeypatch.setattr(neighbor_groups, "BLOCK", 30)
    found = find_neighbor_groups(vectors, texts, 8)
    wanted = [group + first for first, groups in zip((0, 30, 60), blocks, strict=True) for group in groups]
    assert [group.tolist() for group in found] == [group.tolist() for group in wanted]


@pytest.mark.parametrize(("wanted", "found"), [(7, 7), (100, 20)])
def test_rows_that_are_grouped_are_as_many_as_are_trained_on(wanted, found):
    rows = rows_to_group(20, wanted, seed=1).tolist()
    assert len(set(rows)) == len(rows) == found
    assert rows == rows_to_group(20, 100, seed=1).tolist()[:found]
    assert rows != rows_to_group(20, wanted, seed=2).tolist()


def test_groups_of_different_sizes_are_dealt_whole_once_each_and_in_another_order_every_pass():
    groups = [np.arange(0, 5), np.arange(5, 7), np.arange(7, 12), np.array([14])]
    order = ExampleOrder(20, 4, seed=2, drop_last=False, groups=groups)
    passes = [np.concatenate([order.batch(epoch, k) for k in range(len(order))]).tolist() for epoch in range(4)]
    for dealt in passes:
        assert sorted(dealt) == [*range(12), 14]
        assert all(dealt.index(group[-1]) - dealt.index(group[0]) == len(group) - 1 for group in groups)
    assert len(set(map(tuple, passes))) > 1


def module(tmp_path, tokenizer, groups):
    rows = [{"question": f"a ferry in harbour {n}", "answer": f"boat {n}"} for n in range(48)]
    path = write_rows(tmp_path / "rows" / "qa.jsonl", rows)
    keys = {"cache_dir": str(tmp_path / "cache"), "tokenizer": str(tokenizer), "max_length": 32, "batch_size": 16}
    data = data_module("qa", path=path, **keys)
    data.groups = groups
    return data


def test_two_processes_have_the_batches_of_one_and_a_run_goes_on_in_the_same_order(tmp_path, tiny_bert):
    groups = list(np.random.default_rng(5).permutation(48).reshape(24, 2))
    whole = [batch.rows for batch in batches(module(tmp_path, tiny_bert, groups))]
    for batch in whole:
        assert {tuple(pair) for pair in batch.reshape(8, 2)} <= {tuple(group) for group in groups}
    halves = [[batch.rows for batch in batches(module(tmp_path, tiny_bert, groups), rank=r, world=2)] for r in (0, 1)]
    for one, other, both in zip(*halves, whole, strict=True):
        assert np.array_equal(np.stack([one, other], 1).reshape(-1), both)
    stream = as_rank(module(tmp_path, tiny_bert, groups), 0, 1).train_dataloader()
    list(itertools.islice(stream, 1))
    again = as_rank(module(tmp_path, tiny_bert, groups), 0, 1).train_dataloader()
    again.load_state_dict(stream.state_dict())
    assert np.array_equal([batch.rows for batch in again], whole[1:])
    at_random = as_rank(module(tmp_path, tiny_bert, ()), 0, 1).train_dataloader()
    with pytest.raises(InputError) as error:
        again.load_state_dict(at_random.state_dict())
    assert error.value.key == "resume"
    assert "groups" in error.value.expected
