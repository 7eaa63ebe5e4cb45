"""Numbers in columns of texts and booleans as scores: every format gives what a .csv gives."""

import json
from pathlib import Path

import pandas as pd
import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import PAIRS, QA
from contrastive_encoders.training.in_memory_rows import overrides_for_rows


def read(path: Path, kind=QA) -> list:
    return [(*one.texts, one.label) for one in RecordSource(path, kind, columns=None, split="train", on_error="fail")]


def tables(frame: pd.DataFrame, folder: Path) -> list[Path]:
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_parquet(folder / "a.parquet")
    frame.to_json(folder / "a.jsonl", orient="records", lines=True)
    return [folder / name for name in ("a.csv", "a.parquet", "a.jsonl")]


@pytest.mark.parametrize(("answers", "texts"), [([0, -7], ["0", "-7"]), ([0.5, 2.25], ["0.5", "2.25"])])
def test_a_number_is_the_text_that_a_csv_has(answers, texts, tmp_path):
    frame = pd.DataFrame({"question": ["how many", "how few"], "answer": answers})
    wanted = [("how many", texts[0], None), ("how few", texts[1], None)]
    assert [read(path) for path in tables(frame, tmp_path)] == [wanted] * 3


@pytest.mark.parametrize("value", [True, [1], float("inf")])
def test_other_values_are_no_texts(value, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "q", "answer": value}))
    with pytest.raises(InputError):
        RecordSource(path, QA._replace(lists=()), columns=None, split="train", on_error="fail").__iter__().__next__()


def test_booleans_are_scores_of_one_and_zero(tmp_path):
    frame = pd.DataFrame({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [True, False]})
    assert [read(path, PAIRS) for path in tables(frame, tmp_path)] == [[("a", "c", 1.0), ("b", "d", 0.0)]] * 3


@pytest.mark.parametrize("scores", [["1", "0"], [True, False], ["true", "false"], [1, 0]])
def test_scores_of_rows_in_memory_are_numbers(scores, tmp_path):
    frame = pd.DataFrame({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": scores})
    choices, _, cached = overrides_for_rows(frame, {}, tmp_path)
    assert choices["data"] == "dino"
    assert [json.loads(line)["score"] for line in cached.path.read_text().splitlines()] == [1.0, 0.0]
