"""Tables as other libraries write them: datasets' save_to_disk, and pandas' nullable columns."""

import datasets
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import PAIRS, QA
from tests.data import TextSource

ROWS = {"question": ["a b", "c d"], "answer": ["e f", "g h"]}


def texts(path, split="train", kind=QA, on_error="fail"):
    return [record.texts for record in RecordSource(str(path), kind, columns=None, split=split, on_error=on_error)]


@pytest.mark.parametrize("name", ["one", "two parts"])
def test_a_data_set_that_was_saved_to_disk(name, tmp_path):
    datasets.Dataset.from_dict(ROWS).save_to_disk(tmp_path / "saved", num_shards=1 if name == "one" else 2)
    assert texts(tmp_path / "saved") == [("a b", "e f"), ("c d", "g h")]


def test_splits_that_were_saved_to_disk(tmp_path):
    saved = tmp_path / "saved"
    parts = {
        "train": datasets.Dataset.from_dict(ROWS),
        "dev": datasets.Dataset.from_dict({"question": ["x"], "answer": ["y"]}),
    }
    datasets.DatasetDict(parts).save_to_disk(saved)
    assert texts(saved) == [("a b", "e f"), ("c d", "g h")]
    assert texts(saved, split="dev") == [("x", "y")]
    assert RecordSource(str(saved), QA, columns=None, split="train", on_error="fail").has_split("dev")
    with pytest.raises(InputError) as caught:
        texts(saved, split="test")
    assert (caught.value.key, caught.value.value) == ("data.split", "test")


def test_documents_that_were_saved_to_disk(tmp_path):
    datasets.Dataset.from_dict({"text": ["one document", "another"]}).save_to_disk(tmp_path / "saved")
    assert list(TextSource(str(tmp_path / "saved")).texts()) == ["one document", "another"]


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_pandas_missing_values_are_empty_cells(form, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "id": pandas.array([1, None, 3, 4], dtype="Int64"),
            "question": pandas.array(["a", pandas.NA, "c", "d"], dtype="string"),
            "answer": ["e", "f", None, "h"],
        }
    )
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        frame.to_parquet(path)
    else:
        rows = ['"a", "answer": "e"', 'NaN, "answer": "f"', '"c", "answer": null', '"d", "answer": "h"']
        path.write_text("[" + ", ".join(f'{{"question": {row}}}' for row in rows) + "]")
    source = RecordSource(path, QA, columns=None, split="train", on_error="skip")
    assert [record.texts for record in source] == [("a", "e"), ("d", "h")]
    counts = source.manifest()
    assert (counts["empty"], counts["malformed"]) == (2, 0)


def test_a_nullable_label_is_a_number(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sentence1": ["a", "b"], "sentence2": ["c", "d"]})
    frame["score"] = pandas.array([1, 0], dtype="Int64")
    frame.to_parquet(tmp_path / "rows.parquet")
    source = RecordSource(tmp_path / "rows.parquet", PAIRS, columns=None, split="train", on_error="fail")
    assert [record.label for record in source] == [1.0, 0.0]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_missing_values_that_were_written_as_words_are_texts_and_counted(form, tmp_path):
    pandas = pytest.importorskip("pandas")
    answers = [str(value) for value in ("e", None, "nan bread", float("nan"), "#NAME?")]
    frame = pandas.DataFrame({"question": ["a", "b", "c", "d", "f"], "answer": answers})
    path = tmp_path / f"rows.{form}"
    frame.to_csv(path, index=False) if form == "csv" else frame.to_json(path, orient="records", lines=True)
    source = RecordSource(path, QA, columns=None, split="train", on_error="fail")
    assert [record.texts[1] for record in source] == ["e", "None", "nan bread", "nan", "#NAME?"]
    assert source.manifest()["null_words"] == 3
