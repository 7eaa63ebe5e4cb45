"""Whose a folder is: what is ours goes, what is not stays, and what differs is said."""

import subprocess
import sys
from pathlib import Path

import pytest

from contracts import InputError
from files import claims
from files.claims import clear, differences, hold, is_ours, strangers


def test_a_folder_with_a_mark_is_ours_and_others_are_named(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden"):
        (tmp_path / name).write_text("")
    assert strangers(tmp_path, ["mark"]) == [".hidden", "a.txt", "b.txt"]
    assert strangers(tmp_path, ["mark"], known=lambda name: name.startswith((".", "a"))) == ["b.txt"]
    assert not is_ours(tmp_path, ["mark"])
    (tmp_path / "mark").write_text("")
    assert is_ours(tmp_path, ["other", "mark"])
    assert strangers(tmp_path, ["mark"]) == strangers(tmp_path / "new", ["mark"]) == []


def test_only_what_is_ours_is_removed_and_what_was_left_unfinished_of_it(tmp_path):
    for name in ("shard-1", ".shard-2.part", "mine", ".mine.part", "kept/lock", "kept/gone"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    clear(tmp_path, ["shard-*", "folder", "link", "kept/*", "missing"], keep=[tmp_path / "kept" / "lock"])
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == [".mine.part", "kept", "kept/lock", "mine"]


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1}, ""),
        ({"a": {"b": 1}, "c": "x"}, {"a": {"b": 2}, "c": "y"}, 'a.b is 2, there it was 1; c is "y", there it was "x"'),
        ({"a": 1}, {"b": None, "c": 0}, "a is null, there it was 1; c is 0, there it was null"),
        ({}, {name: 1 for name in "abcd"}, "; ".join(f"{name} is 1, there it was null" for name in "abc")),
        ({"a": ["x" * 90, 1, 2]}, {"a": ["x" * 90, 2, 3]}, "a has [3] besides and lacks [1]"),
        ({"a": [1, 2]}, {"a": [2, 1]}, "a is [2, 1], there it was [1, 2]"),
        ({"a": 1}, {"a": "x" * 90}, f'a is "{"x" * 56}..., there it was 1'),
    ],
    ids=["nothing", "within", "missing", "many", "lists", "order", "long"],
)
def test_what_differs_is_said(before, now, told):
    assert differences(before, now) == told


def test_values_are_shown_as_the_caller_wants():
    assert differences({"a": "x"}, {"a": None}, shown=str) == "a is None, there it was x"


def test_who_holds_a_lock_may_come_back(tmp_path):
    """That others may not, tests/training/test_folder.py knows."""
    assert hold(tmp_path / "new" / "lock")
    assert hold(tmp_path / "new" / ".." / "new" / "lock")


ROOT = Path(__file__).resolve().parents[2]
OWNER = """import subprocess, sys
from pathlib import Path
from files.claims import hold
assert hold(Path(sys.argv[1]))
subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""
WORKER = """import os, sys
from pathlib import Path
from files.claims import work_for
work_for(Path(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_claim_outlives_its_owner_until_its_workers_are_gone(tmp_path, monkeypatch):
    lock, pipes = tmp_path / "lock", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, lock, WORKER], cwd=ROOT, text=True, **pipes)
    worker = owner.stdout.readline().strip()
    monkeypatch.setattr(claims, "TO_LEAVE", 0.2)
    assert not hold(lock), "its owner is there"
    owner.kill()
    owner.wait()
    with pytest.raises(InputError, match=f"process {worker}"):
        hold(lock)
    owner.stdin.close()
    owner.stdout.close()
    monkeypatch.setattr(claims, "TO_LEAVE", 30)
    assert hold(lock)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
