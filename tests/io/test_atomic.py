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
KINDS = pytest.mark.parametrize(("write", "content"), [(atomic_file, None), (atomic_directory, "inside")])


def fill(part, content, text):
    (part / content if content else part).write_text(text)


def text_of(path, content):
    return (path / content if content else path).read_text()


@KINDS
def test_the_old_version_remains_until_the_new_one_is_complete(tmp_path, write, content):
    path = tmp_path / "new" / "name"
    with write(path) as part:
        fill(part, content, "first")
        assert part == partial_path(path) == tmp_path / "new" / ".name.part"
        assert not path.exists()
    with contextlib.suppress(KeyboardInterrupt), write(path) as part:
        fill(part, content, "second")
        raise KeyboardInterrupt
    assert text_of(path, content) == "first"
    with write(path) as part:
        fill(part, content, "third")
        assert text_of(path, content) == "first"
    assert text_of(path, content) == "third"
    assert [one.name for one in path.parent.iterdir()] == ["name"]


@KINDS
def test_a_write_error_has_the_name_of_the_file(tmp_path, write, content):
    with full_disk(1_000), pytest.raises(OSError) as raised, write(tmp_path / "name") as part:  # noqa: PT011
        fill(part, content, "x" * 60_000)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(tmp_path / "name"))


@KINDS
def test_a_partial_file_of_a_killed_process_is_overwritten(tmp_path, write, content):
    code = (
        "import os, sys; from pathlib import Path\n"
        f"from contrastive_encoders.io.atomic import {write.__name__} as write\n"
        "with write(Path(sys.argv[1])) as part:\n"
        "    (part / 'rest' if part.is_dir() else part).write_text('a long text that is incomplete')\n"
        "    os._exit(9)\n"
    )
    path = tmp_path / "name"
    died = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, check=False)
    assert (died.returncode, path.exists(), partial_path(path).exists()) == (9, False, True)
    with write(path) as part:
        fill(part, content, "new")
    assert text_of(path, content) == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["name"]
    assert content is None or [one.name for one in path.iterdir()] == [content]


def test_a_kill_between_the_two_renames_loses_no_data(tmp_path):
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


def test_the_old_folder_is_restored_if_a_rename_fails(tmp_path, monkeypatch):
    path = tmp_path / "name"
    with atomic_directory(path) as part:
        fill(part, "inside", "old")
    rename = Path.rename

    def fail(one, to):
        if one == partial_path(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(one, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError) as raised, atomic_directory(path) as part:  # noqa: PT011
        fill(part, "inside", "new")
    assert raised.value.errno == errno.EIO
    assert text_of(path, "inside") == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["name"]


@KINDS
@pytest.mark.parametrize("stale", ["file", "folder", "link"])
def test_a_partial_entry_of_another_kind_is_removed(tmp_path, write, content, stale):
    part = partial_path(tmp_path / "name")
    if stale == "file":
        part.write_text("incomplete")
    elif stale == "folder":
        (part / "deep").mkdir(parents=True)
    else:
        part.symlink_to(tmp_path / "missing")
    with write(tmp_path / "name") as part:
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
def test_two_writers_of_the_same_name_take_turns(tmp_path, write, content):
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


def test_one_process_builds_a_folder_that_is_incomplete(tmp_path):
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


def test_a_full_disk_and_a_read_only_one_raise_different_errors(tmp_path):
    def build(number):
        def fail(part):
            raise OSError(number, os.strerror(number))

        build_once(tmp_path / "name", lambda folder: False, fail)

    with pytest.raises(OutputError) as full:  # exit code 1
        build(errno.ENOSPC)
    assert os.strerror(errno.ENOSPC) in str(full.value)
    assert str(tmp_path / "name") in str(full.value)
    with pytest.raises(InputError) as read_only:  # exit code 2
        build(errno.EROFS)
    assert (read_only.value.location, read_only.value.value) == (str(tmp_path / "name"), os.strerror(errno.EROFS))
