"""Files and folders are complete or absent, whatever ends the process that writes them."""

import contextlib
import errno
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contrastive_encoders.core import InputError, OutputError
from contrastive_encoders.io.atomic import atomic_directory, atomic_file, atomic_write, build_once, partial_path
from tests.damage import full_disk

ROOT = Path(__file__).resolve().parents[2]
KINDS = pytest.mark.parametrize(("whole", "content"), [(atomic_file, None), (atomic_directory, "inside")])


def fill(part, content, text):
    (part / content if content else part).write_text(text)


def text_of(path, content):
    return (path / content if content else path).read_text()


@KINDS
def test_what_was_there_stays_until_the_new_is_whole(tmp_path, whole, content):
    path = tmp_path / "new" / "name"
    with whole(path) as part:
        fill(part, content, "first")
        assert part == partial_path(path) == tmp_path / "new" / ".name.part"
        assert not path.exists()
    with contextlib.suppress(KeyboardInterrupt), whole(path) as part:
        fill(part, content, "second")
        raise KeyboardInterrupt
    assert text_of(path, content) == "first"
    with whole(path) as part:
        fill(part, content, "third")
        assert text_of(path, content) == "first"
    assert text_of(path, content) == "third"
    assert [one.name for one in path.parent.iterdir()] == ["name"]


@KINDS
def test_an_error_of_a_write_names_what_was_to_be_written(tmp_path, whole, content):
    with full_disk(1_000), pytest.raises(OSError, match="too large") as raised, whole(tmp_path / "name") as part:
        fill(part, content, "x" * 60_000)
    assert raised.value.filename == str(tmp_path / "name")


@KINDS
def test_what_a_kill_left_is_begun_anew(tmp_path, whole, content):
    code = (
        "import os, sys; from pathlib import Path\n"
        f"from contrastive_encoders.io.atomic import {whole.__name__} as whole\n"
        "with whole(Path(sys.argv[1])) as part:\n"
        "    (part / 'left' if part.is_dir() else part).write_text('a long text that was cut short')\n"
        "    os._exit(9)\n"
    )
    path = tmp_path / "name"
    died = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert (died.returncode, path.exists(), partial_path(path).exists()) == (9, False, True)
    with whole(path) as part:
        fill(part, content, "new")
    assert text_of(path, content) == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["name"]
    assert content is None or [one.name for one in path.iterdir()] == [content]


def test_a_kill_between_the_two_renames_takes_nothing(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from contrastive_encoders.io.atomic import atomic_directory\n"
        "rename = Path.rename\n"
        "Path.rename = lambda path, to: os._exit(9) if path.name == '.name.part' else rename(path, to)\n"
        "with atomic_directory(Path(sys.argv[1])) as part:\n"
        "    (part / 'inside').write_text('new')\n"
    )
    path = tmp_path / "name"
    with atomic_directory(path) as part:
        fill(part, "inside", "old")
    died = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert (died.returncode, path.exists()) == (9, False)
    with contextlib.suppress(KeyboardInterrupt), atomic_directory(path):
        assert text_of(path, "inside") == "old"
        raise KeyboardInterrupt
    assert [one.name for one in tmp_path.iterdir()] == ["name"]


def test_a_rename_that_fails_puts_the_folder_back(tmp_path, monkeypatch):
    path = tmp_path / "name"
    with atomic_directory(path) as part:
        fill(part, "inside", "old")
    rename = Path.rename

    def fail(one, to):
        if one == partial_path(path):
            raise OSError(5, "Input/output error")
        return rename(one, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"), atomic_directory(path) as part:
        fill(part, "inside", "new")
    assert text_of(path, "inside") == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["name"]


@KINDS
@pytest.mark.parametrize("stale", ["file", "folder", "link"])
def test_a_part_of_another_kind_is_removed(tmp_path, whole, content, stale):
    part = partial_path(tmp_path / "name")
    if stale == "file":
        part.write_text("left")
    elif stale == "folder":
        (part / "deep").mkdir(parents=True)
    else:
        part.symlink_to(tmp_path / "gone")
    with whole(tmp_path / "name") as part:
        fill(part, content, "new")
    assert text_of(tmp_path / "name", content) == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["name"]


def write_often(path, letter, content):
    for _ in range(20):
        if content is None:
            atomic_write(path, letter * 100_000, sync=False)
        else:
            with atomic_directory(path) as part:
                (part / content).write_text(letter * 100_000)


@KINDS
def test_two_who_write_one_name_take_turns(tmp_path, whole, content):
    path, fork = tmp_path / "name", multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_often, args=(path, letter, content)) for letter in "ab"]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert [one.exitcode for one in writers] == [0, 0]
    assert text_of(path, content) in {letter * 100_000 for letter in "ab"}
    assert [one.name for one in tmp_path.iterdir()] == ["name"]


def build_slowly(directory, calls):
    def build(part):
        os.write(calls, b"x")
        time.sleep(0.3)
        (part / "done").write_text("")

    build_once(directory, lambda folder: (folder / "done").exists(), build)


def test_a_folder_is_built_by_one_and_again_where_it_is_not_whole(tmp_path):
    reading, writing = os.pipe()
    directory, fork = tmp_path / "cache" / "name", multiprocessing.get_context("fork")
    directory.mkdir(parents=True)  # incomplete
    builders = [fork.Process(target=build_slowly, args=(directory, writing)) for _ in range(3)]
    for one in builders:
        one.start()
    for one in builders:
        one.join()
    assert [one.exitcode for one in builders] == [0, 0, 0]
    assert os.read(reading, 9) == b"x"
    assert (directory / "done").exists()


def test_a_disk_that_cannot_be_written_is_the_users_to_solve(tmp_path):
    def build(part):
        raise OSError(number, os.strerror(number))

    for number, kind in ((errno.ENOSPC, OutputError), (errno.EROFS, InputError)):  # status 1, status 2
        with pytest.raises(kind, match=rf"cannot write here \({os.strerror(number)}\)"):
            build_once(tmp_path / "name", lambda folder: False, build)
