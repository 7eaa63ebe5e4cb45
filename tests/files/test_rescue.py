"""What was computed outlives a last writing that fails."""

import io
import json
import re
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from command.signals import TERMINATED
from command.statuses import exit_statuses
from contracts import InputError, NotWritten
from files.rescue import kept_otherwise
from tests.damage import full_disk

COMPUTED = {"scores": {"stsb/cosine": 81.5}, "folder": Path("x")}


def kept(wanted, error, computed=COMPUTED):
    """The file that is named, and the message."""
    with pytest.raises(NotWritten) as raised, kept_otherwise(wanted, computed):
        raise error
    return Path(re.search(r"is in (\S+)\.$", str(raised.value))[1]), str(raised.value)


def test_it_lies_beside_what_could_not_be_written(tmp_path):
    place, said = kept(tmp_path / "results.json", ValueError("results['x'] is nan"))
    assert json.loads(place.read_text()) == {"scores": {"stsb/cosine": 81.5}, "folder": "x"}
    assert place.parent == tmp_path
    assert said.startswith(f"{tmp_path / 'results.json'} could not be written (ValueError: results['x'] is nan)")


def test_where_that_folder_takes_nothing_it_lies_among_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    place, _ = kept(tmp_path / "file" / "results.json", OSError("full"))
    assert place.parent == tmp_path


def test_where_nothing_can_be_written_the_error_stays_and_no_half_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)
    computed = kept_otherwise(tmp_path / "out" / "results.json", {"x": "x" * 100_000})
    with full_disk(1_000), pytest.raises(OSError, match="really full"), computed:
        raise OSError("really full")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_wrong_input_is_told_as_it_is(tmp_path):
    with pytest.raises(InputError, match="choose"), kept_otherwise(tmp_path / "results.json", COMPUTED):
        raise InputError("choose another")
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_stumbles_over_sigterm_has_not_failed(tmp_path):
    """A zip file raises ValueError where it is closed in the middle of a member."""
    archive = zipfile.ZipFile(io.BytesIO(), "w")
    member = archive.open("member", "w")
    wanted = kept_otherwise(tmp_path / "results.json", COMPUTED)
    with pytest.raises(SystemExit) as left, exit_statuses(), wanted, archive:
        sys.exit(TERMINATED)
    assert left.value.code == TERMINATED
    assert isinstance(left.value.__context__, ValueError)  # it did
    assert list(tmp_path.iterdir()) == []
    member.close()
    archive.close()
