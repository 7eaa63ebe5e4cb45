"""Scored rows: the discriminator against a plain forward pass, and rows that do not depend on batches or kills."""

import itertools
import json
import random
import signal
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from contrastive_encoders.core.gense_prompts import DIRECTIONS, parse_prompts
from contrastive_encoders.core.runtime.worker_pool import open_pool
from contrastive_encoders.synthesis.decoding.discriminator import Discriminator
from contrastive_encoders.synthesis.recipes.gense import GenseShards
from contrastive_encoders.synthesis.sentences.preparation import Prepared
from contrastive_encoders.synthesis.shards.sharded_dataset import DataSet, write_data_set
from contrastive_encoders.synthesis.shards.store import ShardStore, read_manifest
from tests.synthesis.commands import rows_of
from tests.synthesis.settings import decoding
from tests.synthesis.toy_t5 import FAMILIES, WORDS, generator

FOUND = yaml.safe_load((Path(__file__).resolve().parents[2] / "configs/prompts/gense.yaml").read_text(encoding="utf-8"))
PROMPTS = parse_prompts(FOUND, "pieces", "test")


def sentences(count, longest=12):
    pick = random.Random(7)
    return [" ".join(pick.choices(WORDS, k=pick.randint(1, longest))) + f" {place}" for place in range(count)]


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_of_a_plain_forward_pass(family):
    """Each pair runs alone, without padding: softmax over the logits of true and false at the first position."""
    model = generator(family)
    score = Discriminator(model, PROMPTS, max_pair_tokens=30)
    pairs = [*itertools.pairwise(sentences(20)), ("a man", ""), ("", "a man"), ("the cat " * 100, "the mat")]
    pairs += pairs[:3]
    found = score(pairs)
    yes, no = (model.tokenizer(word)["input_ids"][0] for word in ("true", "false"))
    for (premise, hypothesis), p in zip(pairs, found, strict=True):
        [wanted] = score.ids.discrimination([premise], [hypothesis], 30)
        with torch.no_grad():
            logits = model.model(input_ids=torch.tensor([wanted]), decoder_input_ids=torch.tensor([[0]])).logits[0, 0]
        assert p == pytest.approx(float(logits[[yes, no]].softmax(0)[0]), abs=6e-7)
    assert max(found) - min(found) > 0.05, "or nothing would have been compared"


def stage_of(folder, texts, *, shard_size=4, decode_batch_size=None, kv_cache_tokens=32_768, candidates=2):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in.txt").write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    how = decoding(
        max_new_tokens=12,
        top_k=20,
        ban_eos=False,
        stop="",
        decode_batch_size=decode_batch_size,
        kv_cache_tokens=kv_cache_tokens,
    )
    given = Prepared(folder / "in.txt", {"kept": len(texts)})
    size, identity = len(texts), {"kind": "scored"}
    shards = GenseShards(how, PROMPTS, candidates, 30, 30)
    return DataSet(folder, "gense", size, shard_size, identity, {}, given, shards)


def written(stage, load, workers=1):
    with open_pool(load, workers) as pool:
        write_data_set(stage, pool, quiet=True)
    return rows_of(stage.folder)


@pytest.fixture(scope="module")
def model():
    return generator("t5-v1.1", end=2.0)


@pytest.fixture
def load(model):
    return lambda: model


def test_rows_hold_every_candidate_with_its_probability(tmp_path, model, load):
    texts = sentences(10)
    stage = stage_of(tmp_path, texts, candidates=3)
    rows = written(stage, load)
    assert [row["premise"] for row in rows] == texts
    score = Discriminator(model, PROMPTS, 30)
    for row in rows:
        for direction in DIRECTIONS:
            assert len(row[direction]) == 3
            for one in row[direction]:
                assert one["p_true"] == pytest.approx(score([(row["premise"], one["text"])])[0], abs=2e-6)
                assert one["text"] == one["text"].strip()
    assert len({one["text"] for row in rows for one in row["entailment"]}) > 10
    assert {one["closed"] for row in rows for direction in DIRECTIONS for one in row[direction]} == {True, False}
    counts = stage.manifest(complete=True)["counts"]
    assert counts["inputs"] == 10
    assert counts["labels"]["entailment"]["samples"] == counts["labels"]["contradiction"]["samples"] == 30


@pytest.mark.slow  # three processes
def test_neither_batches_nor_shards_nor_processes_change_a_row(tmp_path, load):
    texts = sentences(30)
    alone = written(stage_of(tmp_path / "alone", texts, decode_batch_size=1), load)
    assert written(stage_of(tmp_path / "many", texts, shard_size=11), load) == alone
    assert written(stage_of(tmp_path / "budget", texts, shard_size=30, kv_cache_tokens=150), load) == alone
    two = stage_of(tmp_path / "two", texts)
    assert written(two, partial(generator, "t5-v1.1", end=2.0), workers=2) == alone


@pytest.fixture
def interrupted_after(monkeypatch):
    """Raise Ctrl-C after this number of shards has been written."""

    def interrupt(after):
        def write(self, number, *args, **options):
            if len([*self.folder.glob("shard-*")]) >= after:
                raise KeyboardInterrupt
            return real(self, number, *args, **options)

        monkeypatch.setattr(ShardStore, "write", write)

    real = ShardStore.write
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield interrupt
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_kill_at_the_first_shard_leaves_the_manifest_of_this_data_set(tmp_path, load, monkeypatch):
    """The manifest is not that of a command that was refused or interrupted before it wrote one."""
    stage, found = stage_of(tmp_path, sentences(10)), []
    stage.store.write_manifest({**stage.manifest(complete=False), "identity": {"kind": "another"}})
    real = ShardStore.write

    def write(self, number, *args, **options):
        found.append(read_manifest(self.folder)["identity"])
        return real(self, number, *args, **options)

    monkeypatch.setattr(ShardStore, "write", write)
    written(stage, load)
    assert found == [{"kind": "scored"}] * 3


def texts_of(path):
    return [
        [one["text"] for name in DIRECTIONS for one in json.loads(row)[name]] for row in path.read_text().splitlines()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_float32_shards_of_the_same_texts_are_the_same_bytes(tmp_path, seed, interrupted_after, monkeypatch):
    """They do not depend on concurrent shards: after kills, on two processes, with other rows per step."""
    load, texts = partial(generator, "t5", dtype=torch.float32, end=2.0), sentences(200)
    random.Random(seed).shuffle(texts)
    whole, cut, two, few = (
        stage_of(tmp_path / name, texts, shard_size=20, decode_batch_size=rows)
        for name, rows in (("whole", 64), ("cut", 64), ("two", 64), ("few", 5))
    )
    written(whole, load)
    for after in (1, 3, 6):
        interrupted_after(after)
        with pytest.raises(KeyboardInterrupt):
            written(cut, load)
    monkeypatch.undo()
    for other in (cut, two, few):
        written(other, load, workers=2 if other is two else 1)
        same = [
            path
            for path in sorted(whole.folder.glob("shard-*"))
            if texts_of(path) == texts_of(other.folder / path.name)
        ]
        assert len(same) >= 9
        assert all((other.folder / path.name).read_bytes() == path.read_bytes() for path in same)


def test_at_work_the_numbers_stay_what_they_were():
    """Within ``session``, linear layers use another library if it is faster."""
    model = generator("t5-v1.1", dtype=torch.float32)
    score = Discriminator(model, PROMPTS, 30)
    pairs = list(itertools.pairwise(sentences(30)))
    plain = score(pairs)
    with model.session():
        assert score(pairs) == pytest.approx(plain, abs=3e-6)
    assert score(pairs) == plain
