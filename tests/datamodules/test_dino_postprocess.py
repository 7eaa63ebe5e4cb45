"""Post-processing against a slow derivation from the published description, step by step."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrastive_encoders.datamodules.data_configs import ScoredPairDataConfig
from contrastive_encoders.datamodules.sampling.dino_postprocess import (
    Pair,
    PostprocessSettings,
    augment,
    postprocess,
    shuffle,
    split_dev,
)

STEPS = ScoredPairDataConfig(path="pairs.jsonl").postprocess_steps
PUBLISHED = PostprocessSettings(
    steps=STEPS,
    ignore_case=False,
    smoothing=0.2,
    max_pairs_per_label=2,
    random_pairs=2,
    random_pair_source="paper",
    seed=42,
)  # except for the variant
PAIRS = st.lists(
    st.builds(
        Pair,
        st.sampled_from(["a", "b", "A", "c "]),
        st.sampled_from(["a", "b", "c", "c "]),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.just(False),
    ),
    max_size=40,
)
DETERMINISTIC = ("deduplicate", "drop_identical", "smooth", "cap")


def slowly(rows, limit, ignore_case=False):
    """Apply steps 2 to 5 of the published order to shuffled rows, each written as its sentence in the paper."""
    unique = [row for place, row in enumerate(rows) if row not in rows[:place]]
    different = []
    for x1, x2, label in unique:
        if ignore_case:
            if x1.strip().casefold() == x2.strip().casefold():
                continue
        elif x1 == x2:
            continue
        different.append((x1, x2, label))
    smoothed = [(x1, x2, label * 0.8 + 0.1) for x1, x2, label in different]
    kept = []
    for x1, x2, label in smoothed:
        if sum(1 for other in kept if other[0] == x1 and other[2] == label) < limit:
            kept.append((x1, x2, label))
    return kept


@given(PAIRS, st.integers(1, 3), st.booleans(), st.integers(0, 3))
def test_the_steps_are_those_of_the_slow_derivation(rows, limit, ignore_case, seed):
    settings = PUBLISHED._replace(
        steps=("shuffle", *DETERMINISTIC), max_pairs_per_label=limit, ignore_case=ignore_case, seed=seed
    )
    order = shuffle(rows, settings)
    assert Counter(order) == Counter(rows)
    found, reports = postprocess(rows, settings)
    assert [pair[:3] for pair in found] == slowly([pair[:3] for pair in order], limit, ignore_case)
    lefts = [len(rows), *(report.left for report in reports)]
    for report, (before, after) in zip(reports, itertools.pairwise(lefts), strict=True):
        assert after == before - report.dropped + report.added


@given(PAIRS, st.sampled_from(["paper", "published"]), st.integers(0, 4), st.integers(0, 5))
def test_augmentation_gives_each_x1_random_x2_of_label_0(rows, variant, number, seed):
    settings = PUBLISHED._replace(random_pair_source=variant, random_pairs=number, seed=seed)
    before = list(rows)
    found = augment(rows, settings)
    assert rows == before
    assert found[: len(rows)] == rows
    added = found[len(rows) :]
    assert all(pair.score == 0 for pair in added)
    for x1 in dict.fromkeys(pair.left for pair in rows):
        allowed = {pair.right for pair in rows if variant == "published" or pair.left != x1}
        mine = [pair.right for pair in added if pair.left == x1]
        assert len(mine) == (number if allowed else 0)
        assert set(mine) <= allowed
    assert [pair.left for pair in added] == sorted((p.left for p in added), key=[p.left for p in rows].index)


@pytest.mark.parametrize(("variant", "expected"), [("paper", "cde"), ("published", "abcde")])
def test_random_x2_are_drawn_evenly(variant, expected):
    rows = [Pair("1", "a", 1), Pair("2", "c", 1), Pair("1", "b", 1), Pair("3", "d", 1), Pair("2", "e", 1)]
    drawn = Counter()
    for seed in range(1500):
        added = augment(rows, PUBLISHED._replace(random_pair_source=variant, seed=seed))[len(rows) :]
        drawn.update(pair.right for pair in added if pair.left == "1")
    assert set(drawn) == set(expected)
    share = 3000 / len(expected)
    deviation = (share * (1 - 1 / len(expected))) ** 0.5
    assert all(abs(count - share) < 4.5 * deviation for count in drawn.values())


@given(PAIRS, st.integers(0, 3))
def test_the_whole_is_a_function_of_the_seed_and_leaves_its_input_alone(rows, seed):
    before = list(rows)
    first = postprocess(rows, PUBLISHED._replace(seed=seed))
    assert rows == before
    assert postprocess(list(rows), PUBLISHED._replace(seed=seed)) == first
    without, _ = postprocess(rows, PUBLISHED._replace(seed=seed, steps=STEPS[:-1]))
    assert first[0][: len(without)] == without  # the draws of a step do not depend on other steps


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0.0, 0.1, 0.5, 0.9])), min_size=40, max_size=120)
)
def test_a_tenth_of_each_label_is_held_out(rows):
    pairs = [Pair(left, str(place), score) for place, (left, score) in enumerate(rows)]
    train, dev = split_dev(pairs, 0.1, seed=3)
    assert sorted(train + dev) == sorted(pairs)
    for score, number in Counter(pair.score for pair in pairs).items():
        assert sum(pair.score == score for pair in dev) == int(number * 0.1)
    assert split_dev(pairs, 0.1, seed=3) == (train, dev)
    assert split_dev(pairs, 0, seed=3)[1] == []


@given(PAIRS, st.sampled_from([0.1, 0.3, 0.5]))
def test_no_x1_is_on_both_sides(rows, share):
    train, dev = split_dev(rows, share, seed=1, by="x1")
    assert Counter(train + dev) == Counter(rows)
    assert not {pair.left for pair in train} & {pair.left for pair in dev}
    assert len({pair.left for pair in dev}) == int(len({pair.left for pair in rows}) * share)


@given(PAIRS, st.sampled_from([0.1, 0.5]), st.sampled_from(["pair", "x1"]))
def test_added_pairs_are_never_held_out_and_move_no_other(rows, share, by):
    added = [Pair(pair.left, f"{pair.right} again", 0.0, added=True) for pair in rows]
    train, dev = split_dev([*rows, *added], share, seed=1, by=by)
    assert dev == split_dev(rows, share, seed=1, by=by)[1]
    left = {pair.left for pair in dev} if by == "x1" else set()
    assert [pair for pair in train if pair.added] == [pair for pair in added if pair.left not in left]
