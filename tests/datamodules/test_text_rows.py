"""Batches hold the rows that their order names, on any number of processes, and the rows' own texts and labels."""

import gzip
import itertools
import json

import pytest
import torch
from transformers import AutoTokenizer

from contracts import InputError, NLIBatch, SentenceBatch, TripletBatch
from datamodules.record_kinds import RELATIONS
from tests.data import as_rank, data_module, sequences_of, write_rows

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
    assert len(seen) == len(set(seen)) == 8  # what does not fill a batch is left for other epochs
    assert list(data.texts()) == [sentence(i) for i in range(10)]


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
    same = [[one == other for one in batch.groups.tolist()] for other in batch.groups.tolist()]
    assert same == [[one // 2 == other // 2 for one in batch.rows] for other in batch.rows]
    assert (batch.groups.dtype, batch.groups.shape) == (torch.int64, (8,))


def test_pairs_that_get_hard_negatives_are_read_anew(tmp_path, tiny_bert):
    records = [{"anchor": sentence(i), "positive": sentence(i + 1)} for i in range(4)]
    path = write_rows(tmp_path / "t.jsonl", [record | {"negative_1": "fog"} for record in records])
    fingerprints = []
    for columns in (["anchor", "positive"], None, ["anchor", "positive", "negative_1"]):
        data = make("triplets", path, tiny_bert, tmp_path, columns=columns)
        fingerprints.append(json.dumps(data.source().fingerprint()))
        (batch,) = data.train_dataloader()
        assert (batch.negatives is None) == (columns == ["anchor", "positive"])
    assert len(set(fingerprints)) == 3
    with pytest.raises(InputError, match="or more of the last"):
        make("triplets", path, tiny_bert, tmp_path, columns=["anchor"])


def test_questions_and_answers_are_triplets_without_negatives(tmp_path, tiny_bert):
    records = [{"question": sentence(i), "answer": sentence(i + 1)} for i in range(4)]
    data = make("qa", write_rows(tmp_path / "q.jsonl", records), tiny_bert, tmp_path)
    (batch,) = data.train_dataloader()
    assert isinstance(batch, TripletBatch)
    assert batch.negatives is None


def test_the_processes_share_a_global_batch(tmp_path, tiny_bert):
    records = [{"question": sentence(i), "answer": sentence(i + 1)} for i in range(30)]
    path = write_rows(tmp_path / "q.jsonl", records)
    alone = [batch.rows.tolist() for batch in make("qa", path, tiny_bert, tmp_path).train_dataloader()]
    ranks = [as_rank(make("qa", path, tiny_bert, tmp_path), rank, 2).train_dataloader() for rank in (0, 1)]
    together = [[batch.rows.tolist() for batch in stream] for stream in ranks]
    assert len(alone) == 7
    assert [sorted(one + other) for one, other in zip(*together, strict=True)] == [sorted(rows) for rows in alone]
    groups = [next(iter(stream)).groups for stream in ranks]
    assert all(part.dtype == torch.int64 for part in groups)
    with pytest.raises(InputError, match="do not split evenly over 3 processes"):
        as_rank(make("qa", path, tiny_bert, tmp_path), 0, 3).train_dataloader()


def test_a_stream_goes_on_where_it_stopped_and_refuses_other_data(tmp_path, tiny_bert):
    records = [{"question": sentence(i), "answer": sentence(i + 1)} for i in range(20)]
    path = write_rows(tmp_path / "q.jsonl", records)
    stream = make("qa", path, tiny_bert, tmp_path, seed=5).train_dataloader()
    whole = [batch.rows.tolist() for _ in range(2) for batch in stream]
    assert whole[:5] != whole[5:]
    first = make("qa", path, tiny_bert, tmp_path, seed=5).train_dataloader()
    batches = iter(first)
    assert [next(batches).rows.tolist() for _ in range(3)] == whole[:3]
    resumed = make("qa", path, tiny_bert, tmp_path, seed=5).train_dataloader()
    resumed.load_state_dict(first.state_dict())
    assert [batch.rows.tolist() for batch in resumed] == whole[3:5]
    other = write_rows(tmp_path / "other.jsonl", [dict(record, answer="fog") for record in records])
    with pytest.raises(InputError, match="content has changed"):
        make("qa", other, tiny_bert, tmp_path, seed=5).train_dataloader().load_state_dict(first.state_dict())


def test_a_fraction_lies_inside_a_larger_one(tmp_path, tiny_bert):
    path = write_rows(tmp_path / "q.jsonl", [{"question": sentence(i), "answer": "fog"} for i in range(40)])

    def rows(fraction):
        data = make("qa", path, tiny_bert, tmp_path, fraction=fraction, batch_size=2)
        return {row for batch in data.train_dataloader() for row in batch.rows.tolist()}, data.manifest()["used"]

    (few, five), (more, ten) = rows(0.125), rows(0.25)
    assert (five, ten) == (5, 10)
    assert len(more) == 10
    assert len(few) == 4
    assert few < more
    with pytest.raises(InputError, match=r"data\.fraction"):
        rows(1.5)


def test_the_manifest_says_where_the_rows_came_from(tmp_path, tiny_bert):
    records = [{"question": sentence(i), "answer": "fog", "split": "valid" if i > 5 else "train"} for i in range(8)]
    data = make("qa", write_rows(tmp_path / "q.jsonl", records), tiny_bert, tmp_path, max_length=9999)
    manifest = data.manifest()
    json.dumps(manifest)
    assert (manifest["kept"], manifest["used"], manifest["max_length"]) == (6, 6, 9999)
    assert manifest["source"]["other_splits"] == {"valid": 2}
    assert len(manifest["source"]["sha256"]) == 64
    assert data.held_out() == []


@pytest.mark.parametrize("backbone", ["tiny_bert", "tiny_mlm"])
def test_overlap_finds_a_sentence_that_is_a_row_and_one_inside_a_row(tmp_path, request, backbone):
    path = tmp_path / "s.txt"
    whole, inside = (
        "The ferry leaves the harbour before the market opens.",
        "Bread rises slowly in a cold kitchen when nobody looks",
    )
    path.write_text(f"{whole}\nHe said so: {inside} every day\nRain fell on the orchard for the third day\n")
    data = make("sentences", path, request.getfixturevalue(backbone), tmp_path)
    elsewhere = "Two astronomers argued about the colour of the comet."
    across = "every day Rain fell on the orchard for the third day"  # the end of a row and the beginning of the next
    found = data.count_overlap([whole, inside, elsewhere, across, "Rain"])
    assert found == {"checked": 4, "found": 2}
    assert data.count_overlap([]) == {"checked": 0, "found": 0}
    assert data.count_overlap(["Rain"]) == {"checked": 0, "found": 0}


def test_a_batch_larger_than_the_data_is_refused(tmp_path, tiny_bert):
    path = write_rows(tmp_path / "q.jsonl", [{"question": "rain", "answer": "fog"}])
    with pytest.raises(InputError, match="larger than the data, which has 1"):
        make("qa", path, tiny_bert, tmp_path).train_dataloader()
    with pytest.raises(InputError, match="no tokenizer could be loaded"):
        make("qa", path, tmp_path / "nothing", tmp_path).prepare_data()


def test_real_texts(tmp_path, shared_data, minilm_path):
    whole = shared_data / "train" / "triplets.jsonl.gz"
    part = tmp_path / "triplets.jsonl.gz"
    with gzip.open(whole) as source, gzip.open(part, "wb") as target:
        target.writelines(itertools.islice(source, 2_000))
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    data = make("triplets", part, minilm_path, tmp_path, batch_size=256, max_length=32)
    batch = next(iter(data.train_dataloader()))
    records = list(data.records)
    for column, sequences in enumerate([batch.anchors, batch.positives, batch.negatives]):
        texts = [records[row].texts[column] for row in batch.rows]
        assert sequences_of(sequences) == tokenizer(texts, truncation=True, max_length=32)["input_ids"]
    assert sum(1 for _ in make("triplets", whole, minilm_path, tmp_path).records) == 29_740
