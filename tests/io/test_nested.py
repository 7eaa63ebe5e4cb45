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


def test_what_stands_inside_of_another_column_has_both_names(path):
    found = [one.texts for one in RecordSource(path, QA, columns=["q.en", "answers.text.1"])]
    assert found == [(f"question {i}", f"two {i}") for i in range(3)]


def test_list_inside_another_column_holds_the_positives(path):
    found = [(one.texts, one.positives) for one in RecordSource(path, QA, columns=["q.en", "answers.text"])]
    assert found == [((f"question {i}", f"one {i}", f"two {i}"), 2) for i in range(3)]


def test_what_is_not_there_is_named_with_what_is(path):
    with pytest.raises(InputError) as error:
        list(RecordSource(path, QA, columns=["q.de", "answers.text.0"]))
    assert "q.de is missing; the columns are " in str(error.value)


def test_a_column_whose_own_name_has_a_dot(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"a.b": "whole", "a": {"b": "inside", "c": "other"}}])
    assert [one.texts for one in RecordSource(path, QA, columns=["a.b", "a.c"])] == [("whole", "other")]
