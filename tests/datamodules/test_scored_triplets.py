"""Triplets with a teacher's scores: what is read and stored, and the messages about invalid rows."""

import csv
import json

import numpy as np
import pytest
from transformers import AutoTokenizer

from contrastive_encoders.core import InputError
from tests.data import batches, data_module, sequences_of, write_rows

TEXTS = {"anchor": "where is it", "positive": "it is here", "negative_1": "no", "negative_2": "nowhere at all"}
SCORES = [[9.25, -3, 0.5], [1e6, 0, -1e-3], [8, 8, 8], [-1, 2, 3]]


def rows():
    return [{**TEXTS, "anchor": f"where is it {n}", "scores": one} for n, one in enumerate(SCORES)]


def made(path, tiny_bert, tmp_path, **keys):
    keys = {"tokenizer": str(tiny_bert), "cache_dir": str(tmp_path / "cache"), "batch_size": 2} | keys
    data = data_module("scored_triplets", path=str(path), max_length=16, **keys)
    data.prepare_data()
    data.setup()
    return data


def as_csv(path, found):
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, found[0])
        table.writeheader()
        table.writerows({**row, "scores": json.dumps(row["scores"])} for row in found)
    return path


def as_parquet(path, found):
    pyarrow = pytest.importorskip("pyarrow")
    __import__("pyarrow.parquet")
    floats = [{**row, "scores": list(map(float, row["scores"]))} for row in found]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(floats), path)
    return path


@pytest.mark.parametrize(("name", "write"), [("a.jsonl", write_rows), ("a.csv", as_csv), ("a.parquet", as_parquet)])
def test_rows_keep_their_scores_through_store_and_batch(name, write, tiny_bert, tmp_path):
    data = made(write(tmp_path / name, rows()), tiny_bert, tmp_path)
    assert data.store.labels.shape == (4, 3)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    seen = []
    for batch in batches(data):
        wanted = np.array([SCORES[row] for row in batch.rows], np.float32)
        np.testing.assert_array_equal(batch.scores.numpy(), wanted)
        texts = [f"where is it {row}" for row in batch.rows]
        assert sequences_of(batch.anchors) == tokenizer(texts)["input_ids"]
        negatives = [TEXTS["negative_1"], TEXTS["negative_2"]] * len(texts)
        assert sequences_of(batch.negatives) == tokenizer(negatives)["input_ids"]
        seen += batch.rows.tolist()
    assert sorted(seen) == [0, 1, 2, 3]


def test_one_negative_has_two_scores(tiny_bert, tmp_path):
    row = {"anchor": "a b", "positive": "c d", "negative": "e f", "scores": [1.5, 0.5]}
    (batch,) = batches(made(write_rows(tmp_path / "a.jsonl", [row, row]), tiny_bert, tmp_path))
    assert batch.scores.tolist() == [[1.5, 0.5]] * 2
    assert len(batch.negatives.lengths) == 2


def test_a_truncated_store_is_rebuilt(tiny_bert, tmp_path):
    path = write_rows(tmp_path / "a.jsonl", rows())
    labels = made(path, tiny_bert, tmp_path).store.directory / "labels.bin"
    labels.write_bytes(labels.read_bytes()[:-4])
    assert made(path, tiny_bert, tmp_path).store.labels.tolist() == np.array(SCORES, np.float32).tolist()


WRONG = [
    ([1.0, 2.0], "2 numbers"),
    ([1.0, 2.0, 3.0, 4.0], "4 numbers"),
    (None, "missing"),
    (0.5, "0.5"),
    ([1.0, None, 2.0], "finite"),
    ([1.0, True, 2.0], "finite"),
    ([1.0, "2", 3.0], "finite"),
    ([1.0, float("nan"), 2.0], "finite"),
    ([1.0, 1e39, 2.0], "finite"),
    ([1.0, 10**400, 2.0], "finite"),
    ("1 2 3", "'1 2 3'"),
    ([], "0 numbers"),
]


@pytest.mark.parametrize(("scores", "fault"), WRONG, ids=str)
def test_an_invalid_row_is_named_by_file_and_line(scores, fault, tiny_bert, tmp_path):
    path = tmp_path / "a.jsonl"
    good, bad = ({**TEXTS, "scores": one} for one in (SCORES[0], scores))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (good, bad)), encoding="utf-8")
    with pytest.raises(InputError) as raised:
        made(path, tiny_bert, tmp_path)
    assert raised.value.location == f"{path}:2"
    assert fault in str(raised.value)
    assert made(path, tiny_bert, tmp_path, on_error="skip", max_skipped=0.5, batch_size=1).num_examples == 1


def test_rows_without_scores_or_without_negatives_are_refused(tiny_bert, tmp_path):
    for name, row in (("a", TEXTS), ("b", {"anchor": "a", "positive": "b", "scores": [1.0]})):
        with pytest.raises(InputError) as error:
            made(write_rows(tmp_path / f"{name}.jsonl", [row]), tiny_bert, tmp_path)
        assert error.value.location == f"{tmp_path / name}.jsonl:1"
        assert "scores" in error.value.expected
