"""CSV as people have it, through the command line: a cell is a text, whatever a data frame would take it for."""

import csv
import json

import pytest

from storage.results import read_results

SIZES = ["vocab_size=400", "hidden_size=32", "layers=1", "heads=2", "intermediate_size=64", "max_length=64"]
RUN = ["model=simcse", "data=triplets", "backbone=tiny", *(f"tiny.{size}" for size in SIZES)]
RUN += ["batch_size=8", "max_steps=1", "quiet=true"]
COLUMNS = ("sent0", "sent1", "hard_neg")
ROWS = [
    ('He said "no", and left.', "None", "NA"),
    ("null", "nan", "N/A"),
    ("A line\nbreak, and a comma", '"', "-"),
    ("0", "1.0", "True"),
    ("  blanks around  ", "tab\tin it", "#"),
    ("ünïcödé", "'single'", '""doubled""'),
    ("inf", "#N/A", "<NA>"),
    ("The last one", "follows", "does not"),
]


@pytest.fixture(scope="module")
def trained(command, tmp_path_factory):
    """``trained(file)`` is the account of the data of a run on it."""

    def run(path, *words):
        folder = tmp_path_factory.mktemp("run") / "run"
        outcome = command(*RUN, f"data.path={path}", *words, f"output_dir={folder}")
        assert outcome.status == 0, outcome.err
        return read_results(folder / "results.json")["data"][0]

    return run


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def test_texts_that_look_like_nothing_are_texts(trained, tmp_path):
    """The same tokens are stored as of the JSON that says which texts they are."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in ROWS))
    by_csv, by_json = trained(write_csv(tmp_path / "rows.csv", ROWS)), trained(rows)
    assert by_csv["kept"] == by_json["kept"] == len(ROWS)
    assert by_csv["rows_sha256"] == by_json["rows_sha256"]
    assert by_csv["source"]["skipped"] == 0


def test_an_empty_negative_is_refused_with_its_line_or_left_out_and_counted(trained, command, tmp_path):
    path = write_csv(tmp_path / "rows.csv", [*ROWS[:2], ("A text", "another", ""), *ROWS[2:]])
    refused = command(*RUN, f"data.path={path}", f"output_dir={tmp_path / 'run'}")
    assert refused.status == 2
    assert f"{path}:4: hard_neg is empty" in refused.err
    assert "data.on_error=skip" in refused.err
    assert "Traceback" not in refused.err
    found = trained(path, "data.on_error=skip")
    assert found["kept"] == len(ROWS)
    assert found["source"]["skipped"] == 1
    assert f"{path}:4: hard_neg is empty" in found["source"]["skipped_where"][0]


def test_two_columns_have_no_negatives(trained, tmp_path):
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS[:2], *(row[:2] for row in ROWS)])
    assert trained(path)["texts_per_row"] == 2
