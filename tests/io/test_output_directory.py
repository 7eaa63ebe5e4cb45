"""Output folders: a folder without a marker is refused, and only the entries of the marker are removed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.evaluation.evaluate import check_output as check_results
from contrastive_encoders.export.atomic_export import export_folder
from contrastive_encoders.export.vector_file import VectorFile
from contrastive_encoders.io import output_directory
from contrastive_encoders.io.output_directory import (
    LOCK,
    MARKER,
    acquire_lock,
    check_owner,
    claim_output_directory,
    differences,
    remove_entries,
    unowned_entries,
    write_marker,
)
from contrastive_encoders.synthesis.shards.store import ShardStore
from contrastive_encoders.training.run_directory import claim_folder as claim_run

VECTORS = {"encoder": "a", "rows": 2, "width": 1, "chunk_rows": 2, "dtype": "float32"}
COMMANDS = {
    "run": lambda folder: claim_run(folder, "abc", resume="auto", overwrite=True),
    "data set": lambda folder: ShardStore(folder).claim({}, overwrite=True),
    "export": lambda folder: export_folder(folder).__enter__(),
    "comparison": lambda folder: claim_output_directory("output", folder, "comparison", []),
}


def everything_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "found", ["thesis.docx", "results.json", "config.json", ".git/HEAD", "another kind", "damaged"]
)
def test_an_unowned_folder_is_refused_and_unchanged(tmp_path, command, found):
    folder = tmp_path / "folder"
    folder.mkdir()
    if found in ("another kind", "damaged"):
        write_marker(folder, "another", ["a.txt"])
        (folder / "a.txt").write_text("x")
        if found == "damaged":
            (folder / MARKER).write_text('{"kind": ')
    else:
        (folder / found).parent.mkdir(exist_ok=True)
        (folder / found).write_text("x")
    before = everything_in(folder)
    with pytest.raises(InputError) as error:
        COMMANDS[command](folder)
    if found == "damaged":
        assert error.value.location == str(folder / MARKER)
    else:
        assert error.value.value == folder
        assert ("'another'" if found == "another kind" else Path(found).parts[0]) in error.value.expected
    assert everything_in(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_refused_and_an_empty_folder_is_accepted(tmp_path, command):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as error:
        COMMANDS[command](tmp_path / "file")
    assert (error.value.value, "file" in error.value.expected) == (tmp_path / "file", True)
    (tmp_path / "empty").mkdir()
    COMMANDS[command](tmp_path / "empty")


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("evaluation", {"a.json": "{}"}),
        ("evaluation", {"a.md": "x"}),
        ("vectors", {"a.npy": "x"}),
        ("vectors", {"a.npy.json": "{}"}),
        ("vectors", {"a.npy.part": "x"}),
    ],
)
def test_an_unowned_file_is_refused_and_unchanged(tmp_path, command, files):
    commands = {
        "evaluation": lambda: check_results(tmp_path / "a.json"),
        "vectors": lambda: VectorFile(tmp_path / "a.npy", VECTORS).claim(overwrite=True),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        commands[command]()
    assert str(tmp_path / "a.") in str(error.value)
    assert everything_in(tmp_path) == {name: text.encode() for name, text in files.items()}


@pytest.mark.parametrize("command", ["run", "data set"])
def test_overwrite_removes_only_the_entries_of_the_marker(tmp_path, command):
    COMMANDS[command](tmp_path)
    owned = ["checkpoints/last.ckpt", "stage-a/metrics.csv", "results.json"] if command == "run" else []
    owned += [".shards/00000.json", "shard-00000.jsonl", "x1/manifest.json"] if command == "data set" else []
    for name in (*owned, "thesis.docx", "my/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    COMMANDS[command](tmp_path)
    assert everything_in(tmp_path).keys() - {MARKER, LOCK} == {"thesis.docx", "my/notes.txt"}


def test_a_link_is_removed_without_its_target(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").write_text("x")
    folder = tmp_path / "folder"
    claim_output_directory("output", folder, "run", ["link", "deep", ".a.part", "a"])
    (folder / "link").symlink_to(tmp_path / "target")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".a.part").write_text("unfinished")
    assert unowned_entries(folder) == []
    remove_entries(folder)
    assert {path.name for path in folder.iterdir()} == {MARKER, LOCK}
    assert (tmp_path / "target" / "kept").read_text() == "x"


@pytest.mark.parametrize("entry", ["../far", "/etc", "a/../../far", "..", "."])
def test_a_marker_with_entries_outside_of_its_folder_is_refused(tmp_path, entry):
    (tmp_path / MARKER).write_text(json.dumps({"version": 2, "kind": "run", "entries": [entry], "identity": None}))
    with pytest.raises(InputError) as error:
        check_owner("output", tmp_path, "run")
    assert (error.value.location, repr(entry) in str(error.value.value)) == (str(tmp_path / MARKER), True)


def test_an_export_replaces_an_export_without_other_files(tmp_path):
    folder = tmp_path / "folder"
    for text in ("first", "second"):
        with export_folder(folder) as part:
            (part / "config.json").write_text(text)
    assert everything_in(folder).keys() == {"config.json", MARKER}
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError) as error, export_folder(folder):
        pass
    assert (error.value.value, "notes.txt" in error.value.expected) == (folder, True)
    assert (folder / "config.json").read_text() == "second"


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1}, ""),
        ({"a": {"b": 1}, "c": "x"}, {"a": {"b": 2}, "c": "y"}, r'a\.b .*\b2 .*\b1; c .*"y" .*"x"'),
        ({"a": "69fe19f8" * 8}, {"a": "bab731cd" * 8}, "a .* bab731cd .* 69fe19f8"),
        ({"a": 1}, {"b": None, "c": 0}, "a .* null .* 1; c .* 0 .* null"),
        ({"a": ["x" * 90, 1, 2]}, {"a": ["x" * 90, 2, 3]}, r"a .*\[3\] .*\[1\]"),
        ({"a": 1}, {"a": "x" * 90}, rf'a .* "{"x" * 56}\.\.\. .* 1'),
    ],
    ids=["equal", "nested", "hashes", "missing", "lists", "long"],
)
def test_the_differences_of_two_identities_are_described(before, now, expected):
    assert re.fullmatch(expected, differences(before, now))


def test_the_owner_of_a_lock_may_acquire_it_again(tmp_path):
    """Other processes cannot: see tests/training/test_folder.py."""
    assert acquire_lock(tmp_path / "new" / "lock")
    assert acquire_lock(tmp_path / "new" / ".." / "new" / "lock")


ROOT = Path(__file__).resolve().parents[2]
OWNER = """import subprocess, sys
from pathlib import Path
from contrastive_encoders.io.output_directory import acquire_lock
assert acquire_lock(Path(sys.argv[1]))
subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]])
"""
WORKER = """import os, sys
from pathlib import Path
from contrastive_encoders.io.output_directory import register_worker
register_worker(Path(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_lock_remains_until_the_workers_of_its_owner_have_exited(tmp_path, monkeypatch):
    lock, pipes = tmp_path / "lock", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, lock, WORKER], cwd=ROOT, text=True, **pipes)
    worker = owner.stdout.readline().strip()
    monkeypatch.setattr(output_directory, "EXIT_TIMEOUT_S", 0.2)
    assert not acquire_lock(lock), "its owner is running"
    owner.kill()
    owner.wait()
    with pytest.raises(InputError) as error:
        acquire_lock(lock)
    assert (error.value.location, error.value.value) == (str(tmp_path), f"process {worker}")
    owner.stdin.close()
    owner.stdout.close()
    monkeypatch.setattr(output_directory, "EXIT_TIMEOUT_S", 30)
    assert acquire_lock(lock)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
