"""Batches contain the rows of their order, on any number of processes, with the rows' own texts and labels."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from contrastive_encoders.core import InputError, NLIBatch, SentenceBatch, TripletBatch
from contrastive_encoders.datamodules.sources.row_schemas import RELATIONS
from tests.data import data_module, sequences_of, write_rows

WORDS = "ferry harbour clock rain string choir fog glass comet bread".split()


def make(name, path, tokenizer, cache, **keys):
    return data_module(name, path=path, tokenizer=tokenizer, cache_dir=cache, **keys)


def sentence(number):
    return f"{WORDS[number % 10]} and the {WORDS[number // 10 % 10]} {number}"


def test_sentences(tmp_path, tiny_bert):
    path = tmp_path / "s.txt"
    path.write_text("\n".join(sentence(i) for i in range(10)))
    data = make("sentences", path, tiny_bert, tmp_path, max_length=6)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    seen = []
    for batch in data.train_dataloader():
        assert isinstance(batch, SentenceBatch)
        texts = [sentence(row) for row in batch.rows]
        assert sequences_of(batch.sentences) == tokenizer(texts, truncation=True, max_length=6)["input_ids"]
        seen += batch.rows.tolist()
    assert len(seen) == len(set(seen)) == 8  # rows that do not fill a batch are left for other epochs
    assert list(data.texts()) == [sentence(i) for i in range(10)]


@pytest.mark.parametrize(("count", "joined"), [(12, [(3, 4, 5), (9, 10, 11)]), (10, [(3, 4, 5), (8, 9)]), (1, [])])
def test_every_other_sentences_become_one_text(tmp_path, tiny_bert, count, joined):
    path = tmp_path / "s.txt"
    path.write_text("\n".join(sentence(i) for i in range(count)))
    data = make("sentences", path, tiny_bert, tmp_path, max_length=None, concat_sentences=3, batch_size=1)
    within = {number for group in joined for number in group}
    wanted = [sentence(i) for i in range(count) if i not in within]
    wanted += [" ".join(map(sentence, group)) for group in joined]
    assert sorted(data.texts()) == sorted(wanted)
    assert sorted(len(ids) for batch in data.train_dataloader() for ids in sequences_of(batch.sentences)) == sorted(
        len(ids) for ids in AutoTokenizer.from_pretrained(tiny_bert)(wanted)["input_ids"]
    )
    assert sorted(text for texts in data.used_texts() for text in texts) == sorted(wanted)
    assert data.manifest()["source"]["joined"] == {"texts": 3, "rows": len(within)}


def test_nli_pairs(tmp_path, tiny_mlm):
    labels = [i % 3 for i in range(8)]
    records = [{"premise": sentence(i), "hypothesis": sentence(i + 1), "label": RELATIONS[labels[i]]} for i in range(8)]
    data = make("nli", write_rows(tmp_path / "n.jsonl", records), tiny_mlm, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tiny_mlm)
    for batch in data.train_dataloader():
        assert isinstance(batch, NLIBatch)
        assert batch.labels.dtype == torch.int64
        assert batch.labels.tolist() == [labels[row] for row in batch.rows]
        assert sequences_of(batch.premises) == tokenizer([sentence(row) for row in batch.rows])["input_ids"]
        assert sequences_of(batch.hypotheses) == tokenizer([sentence(row + 1) for row in batch.rows])["input_ids"]


NUMBERED = ("anchor", "positive", "negative_1", "negative_2")


@pytest.mark.parametrize("columns", [("sent0", "sent1", "hard_neg"), ("sent0", "sent1"), NUMBERED])
def test_triplets(tmp_path, tiny_bert, columns):
    records = [{name: sentence(i // 2 + 7 * k) for k, name in enumerate(columns)} for i in range(8)]
    data = make("triplets", write_rows(tmp_path / "t.jsonl", records), tiny_bert, tmp_path, batch_size=8)
    (batch,) = data.train_dataloader()
    assert isinstance(batch, TripletBatch)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    for those, part in zip([[0], [1], range(2, len(columns))], batch[: min(3, len(columns))], strict=False):
        texts = [sentence(row // 2 + 7 * column) for row in batch.rows for column in those]
        assert sequences_of(part) == tokenizer(texts)["input_ids"]
    assert (batch.negatives is None) == (len(columns) == 2)
    assert batch.groups is None


def test_pairs_with_new_hard_negatives_are_read_again(tmp_path, tiny_bert):
    records = [{"anchor": sentence(i), "positive": sentence(i + 1)} for i in range(4)]
    path = write_rows(tmp_path / "t.jsonl", [record | {"negative_1": "fog"} for record in records])
    fingerprints = []
    for columns in (["anchor", "positive"], None, ["anchor", "positive", "negative_1"]):
        data = make("triplets", path, tiny_bert, tmp_path, columns=columns)
        fingerprints.append(json.dumps(data.source().fingerprint()))
        (batch,) = data.train_dataloader()
        assert (batch.negatives is None) == (columns == ["anchor", "positive"])
    assert len(set(fingerprints)) == 3
    with pytest.raises(InputError) as error:
        make("triplets", path, tiny_bert, tmp_path, columns=["anchor"])
    assert (error.value.key, error.value.value) == ("data.columns", ["anchor"])


@pytest.mark.parametrize("backbone", ["tiny_bert", "tiny_mlm"])
def test_overlap_finds_a_sentence_that_is_a_row_and_one_inside_a_row(tmp_path, request, backbone):
    path = tmp_path / "s.txt"
    whole, inside = (
        "The ferry leaves the harbour before the market opens.",
        "Bread rises slowly in a cold kitchen when nobody looks",
    )
    path.write_text(f"{whole}\nHe said so: {inside} every day\nRain fell on the orchard for the third day\n")
    data = make("sentences", path, request.getfixturevalue(backbone), tmp_path)
    elsewhere = "Two astronomers argued about the color of the comet."
    across = "every day Rain fell on the orchard for the third day"  # the end of a row and the start of the next
    found = data.count_overlap([whole, inside, elsewhere, across, "Rain"])
    assert found == {"checked": 4, "found": 2}
    assert data.count_overlap([]) == {"checked": 0, "found": 0}
    assert data.count_overlap(["Rain"]) == {"checked": 0, "found": 0}


@pytest.mark.parametrize("block", [1, 1 << 20])  # texts that are compared at a time
def test_overlap_finds_a_short_sentence_only_if_it_is_an_entire_row(tmp_path, tiny_bert, block, monkeypatch):
    monkeypatch.setattr("contrastive_encoders.datamodules.overlap.BLOCK_TOKENS", block)
    path = tmp_path / "s.txt"
    path.write_text("the kitchen door\nopen the kitchen\nHe said: read the market news every day\n")
    data = make("sentences", path, tiny_bert, tmp_path)
    assert data.count_overlap(["the kitchen door", "read the market", "the cold kitchen"]) == {"checked": 3, "found": 1}
