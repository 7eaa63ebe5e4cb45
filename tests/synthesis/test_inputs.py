"""First sentences are read unchanged and as a stream, and errors name their line."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.synthesis.sentences.inputs import open_inputs

SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_lines_are_unchanged_and_blank_ones_are_counted(tmp_path):
    path = written(tmp_path / "a.txt", b'\xef\xbb\xbf A "quote" \r\n\n  \nB\xe2\x80\xa8C\nlast')
    inputs = open_inputs(path)
    assert list(inputs) == [' A "quote" ', "B\u2028C", "last"]
    assert inputs.summary() == (3, 2, hashlib.sha256(Path(path).read_bytes()).hexdigest())


def test_text_a_is_read_from_jsonl(tmp_path):
    lines = [{"text_a": "A\nB", "text_b": None, "label": "1"}, {"text_a": "C"}]
    path = written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    assert list(open_inputs(path)) == ["A\nB", "C"]
    with pytest.raises(InputError) as error:
        list(open_inputs(path, column="text"))
    assert (error.value.location, "input_column" in error.value.hint) == (f"{path}:1", True)
    assert "'text_a'" in str(error.value)


@pytest.mark.parametrize(
    ("name", "data", "texts", "kind"),
    [
        ("sts-train.csv", 'g\tf\ty\t1\t5.0\tA "lone quote.\tB.\n', ['A "lone quote.', "B."], "stsb"),
        ("a.tsv", "g\tf\ty\t1\t5.0\tA.\tB.\ng\tf\ty\t2\t1.0\tA.\tA.\textra\tcells\n", ["A.", "B.", "A.", "A."], "stsb"),
        ("a.tsv", "genre\tid\tsentence1\tsentence2\tscore\ng\t1\tA.\tB.\t5\n", ["A.", "B."], "stsb"),
    ],
)
def test_tables_of_stsb_are_recognized(tmp_path, name, data, texts, kind):
    inputs = open_inputs(written(tmp_path / name, data))
    assert (list(inputs), inputs.kind) == (texts, kind)


def test_the_type_can_be_set(tmp_path):
    path = written(tmp_path / "a.data", '{"text_a": "A"}')
    assert list(open_inputs(path, "text")) == ['{"text_a": "A"}']
    assert list(open_inputs(path, "jsonl")) == ["A"]
    written(tmp_path / "b.txt", "B")
    assert list(open_inputs(str(tmp_path), "text")) == ["B"]
    with pytest.raises(InputError) as error:
        open_inputs(str(tmp_path), "parquet")
    assert (error.value.value, "parquet" in error.value.expected) == (str(tmp_path), True)


def test_an_explicit_type_overrides_the_header_of_stsb(tmp_path):
    data = "sentence1\tsentence2\tscore\nA.\tB.\t5\n"
    path = written(tmp_path / "a.tsv", data)
    inputs = open_inputs(path, "tsv", "sentence2")
    assert (list(inputs), inputs.kind) == (["B."], "tsv")
    assert list(open_inputs(path, "stsb")) == list(open_inputs(path)) == ["A.", "B."]
    with pytest.raises(InputError) as error:
        list(open_inputs(path, "tsv"))
    assert (error.value.location, "input_column" in error.value.hint) == (f"{path}:2", True)
    assert "text_a" in str(error.value)


@pytest.mark.skipif(not (SHARED / "eval").is_dir(), reason="SHARED_DATA is not there")
def test_the_real_stsb_has_two_inputs_per_pair():
    path = SHARED / "eval" / "STSBenchmark" / "train.tsv"
    assert open_inputs(str(path)).summary().texts == 11_498
