"""Mixtures of data sets: the share and order of each part, against plain training on that part."""

import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from contrastive_encoders.core import InputError, Ragged, SentenceBatch, TripletBatch
from contrastive_encoders.datamodules.sampling.interleaving import Interleaving
from contrastive_encoders.training.startup_summary import describe_small_batches
from tests.conftest import SENTENCES
from tests.data import as_rank, batches, data_module, sequences_of, write_rows
from tests.datamodules.test_passages import corpus, module

SIZES = {"few": 8, "some": 22, "many": 40}


@pytest.fixture
def files(tmp_path):
    """Write two columns of texts, which name the part, the row and the column."""
    return {
        name: write_rows(
            tmp_path / f"{name}.jsonl", [{"anchor": f"a {name} {i}", "positive": f"b {name} {i}"} for i in range(rows)]
        )
        for name, rows in SIZES.items()
    }


@pytest.fixture
def part(tiny_bert, tmp_path):
    keys = {"tokenizer": tiny_bert, "cache_dir": tmp_path / "cache", "max_length": 12, "seed": 3}
    return lambda path, kind="qa", **more: data_module(kind, path=path, **{**keys, **more})


@pytest.fixture
def mixture(files, part):
    def make(names=tuple(SIZES), batch_size=4, of_parts=None, **keys):
        parts = {name: part(files[name], batch_size=batch_size, **(of_parts or {})) for name in names}
        return data_module("mixture", parts=parts, batch_size=batch_size, **{"seed": 3, **keys})

    return make


def rows_of(batch):
    """Return (part, row) of each example."""
    names = np.broadcast_to(batch.part, batch.rows.shape).tolist()
    return list(zip(names, batch.rows.tolist(), strict=True))


def epoch(data, number, rank=0, world=1):
    return [rows_of(batch) for batch in batches(data, rank=rank, world=world, epoch=number)]


def assert_same(ours, theirs):
    for field, one, other in zip(ours._fields, ours, theirs, strict=True):
        if isinstance(one, Ragged):
            assert sequences_of(one) == sequences_of(other)
        elif isinstance(one, torch.Tensor | np.ndarray) and field not in ("part", "groups"):
            assert one.tolist() == other.tolist()


@pytest.mark.parametrize("homogeneous", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("kind", ["qa", "text"])
def test_one_part_is_plain_training(kind, drop_last, homogeneous, files, part, corpus_file):
    keys = {"batch_size": 6, "drop_last": drop_last}
    path = files["some"] if kind == "qa" else corpus_file
    more = {} if kind == "qa" else {"min_span": 4, "max_span": 16, "max_length": 20}
    for number in (0, 1):
        alone = batches(part(path, kind, **keys, **more), epoch=number)
        mixed = data_module(
            "mixture", parts={"it": part(path, kind, **keys, **more)}, seed=8, homogeneous=homogeneous, **keys
        )
        found = batches(mixed, epoch=number)
        assert len(alone) == len(found) > 2
        for ours, theirs in zip(found, alone, strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize("homogeneous", [True, False])
def test_by_size_an_epoch_has_every_row_once(mixture, homogeneous):
    data = mixture(homogeneous=homogeneous, drop_last=False)
    every = Counter((name, row) for name, size in SIZES.items() for row in range(size))
    first, second = (epoch(data, number) for number in (0, 1))
    assert Counter(row for rows in first for row in rows) == Counter(row for rows in second for row in rows) == every
    assert first != second
    if homogeneous:
        assert all(len({name for name, _ in rows}) == 1 for rows in first)


def small_batches(data):
    """Return the sorted rows of each batch of two epochs."""
    return [[sorted(rows) for rows in epoch(data, number)] for number in (0, 1)]


def test_a_batch_has_all_rows_of_a_part_with_fewer_than_batch_size(mixture):
    data = mixture(("few", "many"), batch_size=16, drop_last=False)
    few = [("few", row) for row in range(SIZES["few"])]
    for found in small_batches(data):
        assert sorted(map(len, found)) == [8, 8, 16, 16]
        assert found.count(few) == 1
    assert re.findall(r"\d+ from \w+", describe_small_batches(data)) == ["8 from few"]
    whole = mixture(("few", "many"), batch_size=64, drop_last=False, homogeneous=False)
    everything = sorted((name, row) for name in ("few", "many") for row in range(SIZES[name]))
    assert small_batches(whole) == [[everything]] * 2
    assert "batch_size=64" in describe_small_batches(whole)
    with pytest.raises(InputError, match="batch_size=16"):
        epoch(mixture(("few", "many"), batch_size=16), 0)


def test_a_batch_has_all_rows_if_there_are_fewer_than_batch_size(part, files, tmp_path):
    rows = [{"anchor": f"a {n}", "positive": f"b {n}", "negative": f"c {n}"} for n in range(5)]
    path = write_rows(tmp_path / "triplets.jsonl", rows)
    for kind, file, number in (("triplets", path, 5), ("qa", files["few"], 8)):
        data = part(file, kind, batch_size=16, drop_last=False)
        found = [[sorted(batch.rows.tolist()) for batch in batches(data, epoch=epoch)] for epoch in (0, 1)]
        assert found == [[list(range(number))]] * 2
        assert data.batch_size == number
        assert "batch_size=16" in describe_small_batches(data)
    assert not describe_small_batches(part(path, "triplets", batch_size=5, drop_last=False))


@pytest.mark.parametrize("homogeneous", [True, False])
def test_weights_are_frequencies_and_no_row_comes_again_before_all_have(mixture, homogeneous):
    data = mixture(("few", "many"), weights={"few": 3, "many": 1}, homogeneous=homogeneous)
    drawn = Counter[tuple[str, int]]()
    places = 0
    for number in range(6):
        rows = [row for batch in epoch(data, number) for row in batch]
        drawn.update(rows)
        places += len(rows)
        share = sum(name == "few" for name, _ in rows) / len(rows)
        assert abs(share - 0.75) < 1 / 12  # one of the 12 batches of an epoch
    for name in ("few", "many"):
        passes = [drawn[name, row] for row in range(SIZES[name])]
        assert max(passes) - min(passes) <= 1
    assert abs(sum(n for (name, _), n in drawn.items() if name == "few") / places - 0.75) < 0.01


@pytest.mark.parametrize("homogeneous", [True, False])
def test_the_same_batches_on_two_processes_and_after_a_break(mixture, homogeneous):
    make = lambda: mixture(homogeneous=homogeneous, temperature=2.0)  # noqa: E731
    alone = [rows for number in (0, 1) for rows in epoch(make(), number)]
    shared = [[rows for number in (0, 1) for rows in epoch(make(), number, rank, 2)] for rank in (0, 1)]
    assert [sorted(one + other) for one, other in zip(*shared, strict=True)] == [sorted(rows) for rows in alone]
    assert all(len(one) == len(other) for one, other in zip(*shared, strict=True))

    first = as_rank(make(), 0, 1).train_dataloader()
    consumed = [rows_of(batch) for batch, _ in zip(first, range(5), strict=False)]
    rest = as_rank(make(), 0, 1).train_dataloader()
    rest.load_state_dict({**first.state_dict(), "consumed": 5})
    assert consumed + [rows_of(batch) for _ in range(2) for batch in rest] == alone
    other = as_rank(mixture(homogeneous=homogeneous, temperature=1.0), 0, 1).train_dataloader()
    with pytest.raises(InputError) as error:
        other.load_state_dict(first.state_dict())
    assert error.value.key == "resume"


@pytest.mark.parametrize("numbers", [[3, 5, 1], [0, 4], [7], [100, 1, 1], [33, 70, 2]])
def test_at_every_place_each_part_has_had_its_share(numbers):
    found = Interleaving(numbers, seed=2)
    places = [found.at(4, place) for place in range(sum(numbers))]
    assert sorted(places) == [(part, number) for part, of_it in enumerate(numbers) for number in range(of_it)]
    assert [found.at(4, place) for place in (len(places) - 1, 0)] == [places[-1], places[0]]  # in any order
    for place in range(sum(numbers)):
        before = found.before(place)
        assert sum(before) == place
        for have, number in zip(before, numbers, strict=True):
            assert abs(have - Fraction(place * number, sum(numbers))) < len(numbers)


def test_parts_of_several_kinds_keep_to_themselves(mixture, files, part, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(SENTENCES))
    parts = {"pairs": part(files["few"]), "lines": part(lines, "sentences")}
    kinds = {batch.part: type(batch) for batch in batches(data_module("mixture", parts=parts, batch_size=4))}
    assert kinds == {"pairs": TripletBatch, "lines": SentenceBatch}
    with pytest.raises(InputError) as error:
        as_rank(data_module("mixture", parts=parts, batch_size=4, homogeneous=False), 0, 1)
    assert (error.value.key, error.value.value) == ("data.homogeneous", False)
    assert re.findall(r"(\w+) has (\w+)", error.value.expected) == [
        ("lines", "SentenceBatch"),
        ("pairs", "TripletBatch"),
    ]


PROMPTS = [
    ("to all: ", ["to all: ", "to all: "]),
    (["query: ", "passage: "], ["query: ", "passage: "]),
    ({"answer": "passage: "}, ["", "passage: "]),
    ({"anchor": "query: "}, ["query: ", ""]),
]


@pytest.mark.parametrize(("given", "wanted"), PROMPTS)
def test_a_prompt_gives_the_ids_of_the_joined_string(given, wanted, tiny_mlm, tiny_bert, tmp_path):
    path = write_rows(tmp_path / "q.jsonl", [{"question": q, "answer": q[::-1] * 3} for q in SENTENCES])
    for folder in (tiny_mlm, tiny_bert):  # one joins the space of a prompt with the text after it, one does not
        tokenizer = AutoTokenizer.from_pretrained(folder)
        data = data_module("qa", path=path, tokenizer=folder, cache_dir=tmp_path, max_length=24, prompts=given)
        for batch in batches(data):
            for side, prompt, turn in zip((batch.anchors, batch.positives), wanted, (1, -1), strict=True):
                texts = [prompt + SENTENCES[row][::turn] * (2 - turn) for row in batch.rows]
                assert sequences_of(side) == tokenizer(texts, truncation=True, max_length=24)["input_ids"]
        assert next(data.texts()) == wanted[0] + SENTENCES[0]


NAN = float("nan")
BAD = [
    ({"names": ()}, None, None, []),
    ({"weights": {"few": 1}}, "data.weights.many", None, []),
    ({"weights": {"few": NAN, "many": 1}}, "data.weights.few", NAN, ["0", "2", "1"]),
    ({"weights": {"few": 1, "many": 10_000}}, "data.weights.few", "0.0001", ["12"]),
    ({"batch_size": 10}, "batch_size", 10, ["8"]),
    (
        {"homogeneous": False, "weights": {"few": 9, "many": 1}, "batch_size": 20},
        "data.homogeneous",
        False,
        ["20", "18", "8"],
    ),
    ({"of_parts": {"num_workers": 2}}, "data.parts.few.num_workers", 2, []),
    ({"of_parts": {"prompts": {"negative": "x"}}}, "data.prompts.negative", "x", []),
]


@pytest.mark.parametrize(("keys", "key", "value", "numbers"), BAD)
def test_an_invalid_mixture_is_refused(keys, key, value, numbers, mixture):
    with pytest.raises(InputError) as error:
        as_rank(mixture(**{"names": ("few", "many"), **keys}), 0, 1).train_dataloader()
    assert (error.value.key, error.value.value) == (key, value)
    assert re.findall(r"\b\d+\b", error.value.expected) == numbers
    if "of_parts" in keys or key == "batch_size":
        assert "data.parts.few" in str(error.value)


@pytest.mark.parametrize("names", [("pairs", "passages"), ("passages", "pairs")])
def test_pairs_of_a_passage_stay_a_group_beside_rows_of_other_parts(names, files, part, tmp_path):
    """This is true for any order of the parts; a group of one part does not affect another part."""
    parts = {"pairs": part(files["many"], batch_size=16, max_length=64)}
    keys = {"tokenizer": parts["pairs"].settings.tokenizer, "batch_size": 16, "seed": 3}
    parts["passages"] = module(corpus(tmp_path / "documents.jsonl", 6), tmp_path, **keys)
    data = data_module("mixture", parts={name: parts[name] for name in names}, batch_size=16, homogeneous=False, seed=3)
    seen = 0
    for batch in batches(data):
        alone = [
            float(parts["passages"].store.labels[row]) if of == "passages" else (of, row) for of, row in rows_of(batch)
        ]
        assert (batch.groups[:, None] == batch.groups).tolist() == [[one == other for one in alone] for other in alone]
        seen += len(batch.rows) - len(set(alone))
    assert seen
