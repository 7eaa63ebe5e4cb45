import logging
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrastive_encoders.core import InputError, RatedPairs
from contrastive_encoders.evaluation.catalog import load_tasks
from contrastive_encoders.evaluation.evaluate_config import EvaluateConfig
from contrastive_encoders.evaluation.tables import read_table


def load(root, suite) -> list[RatedPairs]:
    return [task.pairs for task in load_tasks(root, suite, EvaluateConfig()).tasks]


RAW = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb-dev", "stsb", "sickr"]
OFFICIAL = {  # SemEval's counts without STS13's SMT, which is not distributed; SentEval and MTEB have the same
    "sts12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "sts13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14": {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
    "sts15": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16": dict(
        zip(
            ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
            (254, 249, 230, 244, 209),
            strict=True,
        )
    ),
    "stsb-dev": {"stsb-dev": 1500},
    "stsb": {"stsb": 1379},
    "sickr": {"sickr": 4927},
}


def test_the_published_sets_have_their_official_rows_and_subsets(real_data):
    found = {
        task.name: dict(zip(*np.unique(task.subsets, return_counts=True), strict=True)) for task in load(real_data, RAW)
    }
    assert found == OFFICIAL
    assert len(load(real_data, "sickr-all")[0].gold) == 9927


def test_senteval_text_has_the_same_ratings_and_other_words(real_data):
    raw, senteval = load(real_data, "sts12,sts12@senteval")
    assert raw.subsets == senteval.subsets
    np.testing.assert_array_equal(raw.gold, senteval.gold)
    assert (
        raw.left[0] == "The problem likely will mean corrective changes before the shuttle fleet starts flying again."
    )
    assert senteval.left[0].endswith("flying again .")


def test_a_suite_takes_senteval_text_where_it_is(data_root):
    chosen = load_tasks(data_root, "sts", EvaluateConfig())
    names = [task.name for task in chosen.tasks]
    assert names == [*RAW[:-1], "sickr-dev", "sickr", "sickr-all", "sickr-regressor", "sts12@senteval"]
    assert chosen.skipped["sickr-dev@senteval"].startswith(f"{data_root}/SICK/dev.senteval.tsv ")
    (only,) = load_tasks(data_root, "sts@senteval", EvaluateConfig()).tasks
    assert only.name == "sts12@senteval"


@pytest.mark.parametrize("suite", ["stsb-dev, sickr-all", ["stsb-dev", "sickr-all"], ("stsb-dev", "sickr-all")])
def test_tasks_can_be_named(data_root, suite):
    assert [(task.name, len(task.gold)) for task in load(data_root, suite)] == [("stsb-dev", 30), ("sickr-all", 68)]


def test_a_missing_member_of_a_suite_is_left_out_with_one_line(tmp_path, tsv, caplog):
    tsv(tmp_path / "STSBenchmark" / "test.tsv", 1379, 0)
    with caplog.at_level(logging.INFO, "contrastive_encoders.evaluation.catalog"):
        chosen = load_tasks(tmp_path, "sts", EvaluateConfig())
    assert [task.name for task in chosen.tasks] == ["stsb"]
    assert len(caplog.records) == 1
    assert f"{tmp_path}: sts12, sts13" in caplog.text
    assert f"{tmp_path}/STS12/test.tsv" in chosen.skipped["sts12"]


def test_a_table_that_differs_from_the_published_one_is_reported(tmp_path, tsv, caplog):
    tsv(tmp_path / "STSBenchmark" / "test.tsv", 700, 0)
    chosen = load_tasks(tmp_path, "stsb,stsb-geometry", EvaluateConfig(alignment_threshold=3.0))
    [(table, difference)] = chosen.row_count_mismatches.items()
    assert (table, re.findall(r"\d+", difference)) == ("STSBenchmark/test.tsv", ["700", "1379"])
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert difference in record.getMessage()  # once, although two tasks read it


@pytest.mark.parametrize(
    ("suite", "location", "key", "expected"),
    [
        ("stsb-dev", "task stsb-dev", None, "STSBenchmark/dev.tsv"),
        ("sts", None, "data_root", "STS12/test.tsv"),
        ("stsb-test", None, "suite", "stsb"),
    ],
)
def test_missing_tables_are_named(tmp_path, suite, location, key, expected):
    with pytest.raises(InputError) as refused:
        load(tmp_path, suite)
    assert (refused.value.location, refused.value.key) == (location, key)
    assert expected in refused.value.expected
    assert key != "suite" or "stsb" in refused.value.hint


HEADER = b"sentence1\tsentence2\tscore\n"


BROKEN = [
    ("stsb", HEADER + b"a\tb\t1\na\tb\n", r"test\.tsv:3: .*\b3\b.*\b2\b"),
    ("stsb", HEADER + b"a\tb\thigh\n", r"test\.tsv:2, score: .*\b0 to 5\b.*'high'"),
    ("stsb", HEADER + b"a\tb\tNaN\n", r"test\.tsv:2, score: .*\b0 to 5\b.*'NaN'"),
    ("stsb", HEADER + b"a\t \t1\n", r"test\.tsv:2, sentence2: "),
    ("stsb", b"sentence1\tscore\na\t1\n", r"test\.tsv:1: .* sentence2"),
    (
        "stsb",
        HEADER + b"a\tb\t1\nna\xefve\tb\t1\n",
        r"test\.tsv:3: .*UTF-8, .* 0xef .*\b3\b",
    ),
    ("sickr", HEADER + b"a\tb\t0.5\n", "from 1 to 5"),
]


@pytest.mark.parametrize(("task", "data", "message"), BROKEN)
def test_a_broken_file_is_named_with_its_line(tmp_path, task, data, message):
    path = tmp_path / {"stsb": "STSBenchmark", "sickr": "SICK"}[task] / "test.tsv"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        load(tmp_path, task)


CELL = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]))


@given(rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), windows=st.booleans(), last=st.booleans())
def test_any_text_without_tabs_and_line_ends_is_read_back(tmp_path_factory, rows, windows, last):
    end = "\r\n" if windows else "\n"
    text = end.join("\t".join(row) for row in [("first", "second"), *rows]) + (end if last else "")
    path = tmp_path_factory.mktemp("any") / "any.tsv"
    path.write_bytes(text.encode())
    assert [(row.values["first"], row.values["second"]) for row in read_table(path, ["second", "first"])] == rows
