"""``metrics.csv`` contains what was logged, for any order of names, steps, kills and resumes."""

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.training.metrics_csv import MetricsCSV

NAMES = st.sampled_from(["train/loss", "a/b/c", "throughput/x", "stsb-dev/cosine/spearman"])
VALUES = st.floats(allow_nan=False) | st.integers(-(2**40), 2**40)
LOGGED = st.lists(st.tuples(st.integers(0, 8), st.dictionaries(NAMES, VALUES, min_size=1)), max_size=12)


def as_numbers(path):
    with path.open(newline="") as file:
        return {
            int(row.pop("step")): {name: float(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file)
        }


@settings(max_examples=60, deadline=None)
@given(logged=LOGGED, cut=st.integers(-1, 9))
def test_the_file_is_the_dictionary_of_steps_cut_at_the_checkpoint(logged, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("csv")
    logger, truth = MetricsCSV(folder), {}
    for step, values in logged:
        logger.log_metrics(values, step=step)
        truth.setdefault(step, {}).update(values)
    if truth:
        assert as_numbers(folder / "metrics.csv") == truth
        assert list(as_numbers(folder / "metrics.csv")) == sorted(truth)
    again = MetricsCSV(folder)
    again.truncate(cut)
    again.log_metrics({"train/loss": 1.5}, step=10)
    kept = {step: values for step, values in truth.items() if step <= cut}
    assert as_numbers(folder / "metrics.csv") == kept | {10: {"train/loss": 1.5}}


def test_step_comes_first_and_names_are_sorted(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"z": 1, "b": 2.5}, step=3)
    logger.log_metrics({"a": 0.1}, step=3)
    logger.log_metrics({"b": 4.0}, step=5)
    assert (tmp_path / "metrics.csv").read_text() == "step,a,b,z\n3,0.1,2.5,1\n5,,4.0,\n"


def test_a_known_column_is_appended_and_nothing_else_is_touched(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"a": 1}, step=1)
    inode = (tmp_path / "metrics.csv").stat().st_ino
    logger.log_metrics({"a": 2}, step=2)
    assert (tmp_path / "metrics.csv").stat().st_ino == inode
    logger.log_metrics({"b": 2}, step=3)
    assert (tmp_path / "metrics.csv").stat().st_ino != inode


def test_a_torn_last_line_is_dropped(tmp_path):
    logger = MetricsCSV(tmp_path)
    logger.log_metrics({"a": 1}, step=1)
    logger.log_metrics({"a": 2}, step=2)
    path = tmp_path / "metrics.csv"
    path.write_bytes(path.read_bytes()[:-2])
    assert read_rows(path) == [{"step": "1", "a": "1"}]


@pytest.mark.parametrize("value", [0.1, 1e-300, 123456789.123456789, -0.0])
def test_numbers_read_back_exactly(value, tmp_path):
    MetricsCSV(tmp_path).log_metrics({"a": value}, step=0)
    assert float(read_rows(tmp_path / "metrics.csv")[0]["a"]) == value


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_rows_that_were_cut_off_are_restored(rows, tmp_path, caplog):
    logger, path = MetricsCSV(tmp_path), tmp_path / "metrics.csv"
    for step in (1, 2, 3):
        logger.log_metrics({"train/loss": step / 2, "a/b": step}, step=step)
    content, whole = logger.content(), path.read_bytes()
    logger.log_metrics({"train/loss": 2.0}, step=4)  # after the checkpoint
    cut = b"".join(whole.splitlines(keepends=True)[: 1 + rows])
    path.write_bytes(cut if rows == 3 else cut + b"3,0.")
    again = MetricsCSV(tmp_path)
    again.truncate(3, content)
    assert path.read_bytes() == whole
    assert bool(caplog.records) == (rows < 3)
    again.log_metrics({"train/loss": 2.0}, step=4)
    assert sorted(as_numbers(path)) == [1, 2, 3, 4]
