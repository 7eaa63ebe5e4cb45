"""Selection of runs for a comparison: no duplicate, damaged, or unscored run takes part."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from contrastive_encoders.comparison.arms import arms_of, select_runs
from contrastive_encoders.comparison.collect import collect
from contrastive_encoders.comparison.contrasts import choose_ranking_metric
from contrastive_encoders.core import InputError
from contrastive_encoders.io.item_scores import read_items
from contrastive_encoders.io.manifest import read_record, write_record


def change(folder: Path, **entries) -> None:
    path = folder / "results.json"
    write_record(path, {**read_record(path), **entries})


def taken(patterns, headline=None):
    runs, skipped = select_runs(collect([str(one) for one in patterns])[0], headline)
    return [run.path.name for run in runs], [one.reason for one in skipped]


def test_a_folder_written_in_two_ways_is_one_run(run_folder, tmp_path, monkeypatch):
    folder = run_folder(tmp_path / "a", "one", 1, 0.2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    assert len(collect(["a", "./a", "*", str(folder)])[0]) == 1


def test_a_copy_is_no_second_seed(run_folder, tmp_path):
    folder = run_folder(tmp_path / "a", "one", 1, 0.2)
    shutil.copytree(folder, tmp_path / "copy")
    run_folder(tmp_path / "b", "one", 2, 0.2)
    names, reasons = taken([tmp_path / "*"])
    assert names == ["a", "b"]
    assert len(reasons) == 1
    assert "seed 1" in reasons[0]


def test_of_one_seed_the_longest_run_is_taken(run_folder, tmp_path):
    """This happens if a run was continued and W&B keeps two records of it."""
    short = run_folder(tmp_path / "a", "one", 1, 0.2)
    run_folder(tmp_path / "b", "one", 1, 0.2)
    spent = json.loads((short / "results.json").read_text(encoding="utf-8"))["cost"]
    change(short, cost={**spent, "steps": 5})
    assert taken([tmp_path / "*"])[0] == ["b"]


def test_a_run_without_scores_does_not_stop_the_others(run_folder, tmp_path):
    run_folder(tmp_path / "a", "one", 1, 0.2)
    change(run_folder(tmp_path / "b", "two", 1, 0.2), scores={})
    names, reasons = taken([tmp_path / "*"])
    assert names == ["a"]
    assert reasons[0].startswith(f"{tmp_path / 'b'}: ")
    assert f"contrastive-encoders evaluate encoder={tmp_path / 'b'} " in reasons[0]


@pytest.mark.advice("contrastive_encoders.comparison.contrasts:choose_ranking_metric")
def test_who_lacks_the_headline_is_skipped(run_folder, tmp_path):
    run_folder(tmp_path / "a", "one", 1, 0.2)
    change(run_folder(tmp_path / "b", "two", 1, 0.2), scores={"mr/default/accuracy": 80.0})
    assert taken([tmp_path / "*"], "sts12/all/spearman")[0] == ["a"]
    assert taken([tmp_path / "*"], "no/such/score")[0] == ["a", "b"]
    with pytest.raises(InputError) as refused:
        choose_ranking_metric(arms_of(collect([str(tmp_path / "*")])[0]), None)
    assert refused.value.key == "runs"
    assert f"{tmp_path / 'b'}: mr/default/accuracy" in refused.value.expected
    [advised] = re.findall(r"Set ranking_metric=(\S+) ", refused.value.hint)
    assert taken([tmp_path / "*"], advised)[0] == ["a"]


def test_scores_of_a_file_beside_a_run_have_no_curve(run_folder, tmp_path):
    folder = run_folder(tmp_path / "a", "one", 1, 0.2)
    write_record(folder / "scored.json", read_record(folder / "results.json") | {"objective": "of another suite"})
    runs, _ = collect([str(folder), str(folder / "scored.json")])
    assert [len(run.rows) for run in runs] == [3, 0]


def test_test_items_with_any_bytes_changed_are_told(run_folder, tmp_path):
    path = run_folder(tmp_path / "a", "one", 1, 0.2) / "item_scores.npz"
    whole, rng, told = path.read_bytes(), random.Random(1), 0
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            read_items(path)
        except InputError:
            told += 1
    assert told > 40  # some bytes of a zip archive have no effect
