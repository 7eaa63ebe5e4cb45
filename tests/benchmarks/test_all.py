"""All figures of a CPU: what is due is said first, what is done is kept, what failed is tried again."""

import json
import sys

import pytest

from benchmarks import all as every


@pytest.fixture
def measured(monkeypatch, tmp_path, capsys):
    """Call it with words; returns its status, what it printed, and what it keeps."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["all", "--quick", "--output", str(tmp_path), *words])
        status = every.main()
        kept = tmp_path / "figures.json"
        return status, capsys.readouterr().out, json.loads(kept.read_text()) if kept.exists() else {}

    return call


@pytest.mark.slow  # four starts
def test_what_is_done_is_kept_and_what_failed_is_due_again(monkeypatch, measured, tmp_path):
    """`nt_xent` really runs; the other has no such option."""
    monkeypatch.setattr(every, "JOBS", [every.Job("P3", "nt_xent", 2), every.Job("P0", "nt_xent --no-such", 4)])
    status, said, kept = measured("--list")
    assert (status, kept) == (0, {})
    assert "2 of 2 are due, about 0.1 hours" in said
    status, _, kept = measured()
    assert status == 1
    assert kept["nt_xent"]["lines"][0]["figure"] == "P3"
    assert "--no-such" in kept["nt_xent --no-such"]["error"]
    assert len((tmp_path / "figures.md").read_text().splitlines()) == 3 + len(kept["nt_xent"]["lines"])
    before = kept["nt_xent"]
    status, said, kept = measured()
    assert "1 of 2 are due" in said
    assert kept["nt_xent"] == before
    kept["nt_xent"]["commit"] = "another"
    (tmp_path / "figures.json").write_text(json.dumps(kept))
    assert "2 of 2 are due" in measured("--list")[1]
    assert "1 of 1 are due" in measured("--list", "--figures", "P3")[1]


def test_nothing_begins_that_would_take_too_long(monkeypatch, measured):
    monkeypatch.setattr(every, "JOBS", [every.Job("P3", "nt_xent", 60)])
    status, said, kept = measured("--hours", "0.5")
    assert (status, kept) == (1, {})
    assert "about 1.0 hours" in said


def test_every_benchmark_of_the_list_is_there():
    names = {job.words.split()[0] for job in every.JOBS}
    assert all((every.ROOT / "benchmarks" / f"{name}.py").exists() for name in names)
