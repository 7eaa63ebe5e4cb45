"""First sentences are read as they stand, as a stream, and what cannot be read is named with its line."""

import hashlib
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from contracts import InputError
from synthesis.sentences.inputs import open_inputs

SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_lines_stay_as_they_are_and_blank_ones_are_counted(tmp_path):
    path = written(tmp_path / "a.txt", b'\xef\xbb\xbf A "quote" \r\n\n  \nB\xe2\x80\xa8C\nlast')
    inputs = open_inputs(path)
    assert list(inputs) == [' A "quote" ', "B\u2028C", "last"]
    assert inputs.summary() == (3, 2, hashlib.sha256(Path(path).read_bytes()).hexdigest())


def test_jsonl_takes_text_a(tmp_path):
    lines = [{"text_a": "A\nB", "text_b": None, "label": "1"}, {"text_a": "C"}]
    path = written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    assert list(open_inputs(path)) == ["A\nB", "C"]
    with pytest.raises(InputError, match=r"line 1.*'text' is a text.*input_column="):
        list(open_inputs(path, column="text"))


def test_stsb_gives_both_sentences_of_the_columns_5_and_6(tmp_path):
    rows = ['g\tf\ty\t1\t5.0\tA "lone quote.\tB.\n', "g\tf\ty\t2\t1.0\tA.\tA.\textra\tcells\n"]
    path = written(tmp_path / "a.tsv", "".join(rows))
    assert list(open_inputs(path)) == ['A "lone quote.', "B.", "A.", "A."]


def test_the_published_name_of_stsb_is_csv(tmp_path):
    row = "g\tf\ty\t1\t5.0\tA.\tB.\n"
    assert list(open_inputs(written(tmp_path / "sts-train.csv", row))) == ["A.", "B."]


def test_stsb_with_a_header_goes_by_its_names(tmp_path):
    path = written(tmp_path / "a.tsv", "genre\tfile\tyear\tid\tsentence1\tsentence2\tscore\ng\tf\ty\t1\tA.\tB.\t5\n")
    assert list(open_inputs(path)) == ["A.", "B."]


@pytest.mark.skipif(not (SHARED / "eval").is_dir(), reason="SHARED_DATA is not there")
def test_the_real_stsb_has_two_inputs_per_pair():
    path = SHARED / "eval" / "STSBenchmark" / "train.tsv"
    assert open_inputs(str(path)).summary().texts == 11_498


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", b"fine\n\xff\xfe\n", ["line 2", "UTF-8", "iconv"]),
        ("a.txt", b"", ["empty"]),
        ("a.txt", b"\n \n", ["2 blank lines"]),
        ("a.jsonl", b'{"text_a": "x"}\n{"text_a"', ["line 2", "JSON object"]),
        ("a.jsonl", b'{"text_a": 3}', ["line 1", "text_a"]),
        ("a.jsonl", b'{"text_a": "\\ud800"}', ["line 1", "half of a character"]),
        ("a.csv", b"A sentence, one more\n", ["columns 6 and 7", "input_type=text"]),
        ("a.jsonl", b"[]", ["line 1", "got list"]),
        ("a.tsv", b"1\t2\t3\n", ["line 1", "columns 6 and 7", "got 3 columns"]),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, data, words):
    with pytest.raises(InputError) as error:
        open_inputs(written(tmp_path / name, data)).summary()
    assert all(word in str(error.value) for word in [f"input={tmp_path / name}", *words])


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_inputs(str(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="got a folder"):
        open_inputs(str(tmp_path))


def test_100_000_inputs_take_the_memory_of_a_few(tmp_path):
    path = written(tmp_path / "a.txt", "".join(f"sentence number {n} of a long file of them\n" for n in range(100_000)))
    tracemalloc.start()
    assert open_inputs(path).summary().texts == 100_000
    assert sum(1 for _ in open_inputs(path)) == 100_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000, "the file has 4.6 MB"
