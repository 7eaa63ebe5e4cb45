"""Nested columns are read from files of every kind that has them."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.row_schemas import QA
from tests.data import RecordSource, write_rows

ROWS = [{"id": i, "q": {"en": f"question {i}"}, "answers": {"text": [f"one {i}", f"two {i}"]}} for i in range(3)]


@pytest.fixture(params=["jsonl", "json", "parquet"])
def path(request, tmp_path):
    path = tmp_path / f"nested.{request.param}"
    if request.param == "parquet":
        pa.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    elif request.param == "json":
        path.write_text(json.dumps(ROWS))
    else:
        write_rows(path, ROWS)
    return path


def test_a_nested_value_is_named_by_both_columns(path):
    found = [one.texts for one in RecordSource(path, QA, columns=["q.en", "answers.text.1"])]
    assert found == [(f"question {i}", f"two {i}") for i in range(3)]


def test_a_nested_list_provides_the_positives(path):
    found = [(one.texts, one.positives) for one in RecordSource(path, QA, columns=["q.en", "answers.text"])]
    assert found == [((f"question {i}", f"one {i}", f"two {i}"), 2) for i in range(3)]


def test_a_missing_nested_column_is_named(path):
    with pytest.raises(InputError) as error:
        list(RecordSource(path, QA, columns=["q.de", "answers.text.0"]))
    assert all(name in str(error.value) for name in ("q.de", "'answers'", str(path)))


def test_a_column_with_a_dot_in_its_name(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"a.b": "whole", "a": {"b": "inside", "c": "other"}}])
    assert [one.texts for one in RecordSource(path, QA, columns=["a.b", "a.c"])] == [("whole", "other")]
