"""Files of an earlier version of the project are refused; exported encoders of any version are loaded."""

import json
import shutil

import pytest
import torch

from contrastive_encoders.comparison.collect import read_run
from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.records import RecordSource
from contrastive_encoders.datamodules.sources.row_schemas import PAIRS
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.output_directory import MARKER, check_owner
from contrastive_encoders.synthesis.mining.mined_file import is_finished, record_path
from contrastive_encoders.synthesis.shards.store import ShardStore, read_manifest, to_json_lines


def age(record, version=1):
    """Give a JSON record the version of an earlier commit; None removes it, as markers had no version."""
    entries = json.loads(record.read_text())
    assert entries.pop("version") == 2
    record.write_text(json.dumps(entries if version is None else entries | {"version": version}))


@pytest.fixture(scope="module")
def old(finished, tmp_path_factory):
    """Make the directory of a finished run, as an earlier version wrote it."""
    run = tmp_path_factory.mktemp("old") / "run"
    shutil.copytree(finished, run)
    age(run / MARKER, None)
    age(run / "encoder" / MARKER, None)
    age(run / "results.json")
    for path in (run / "checkpoints").glob("*.ckpt"):
        entries = torch.load(path, weights_only=True)
        del entries["record_version"]
        torch.save(entries, path)
    return run


@pytest.fixture
def pairs(tmp_path):
    """Make a finished data set of two shards, and return its identity."""
    store, identity = ShardStore(tmp_path / "pairs"), {"kind": "x2"}
    store.claim(identity, overwrite=False)
    rows = [{"text_a": f"a {place}", "text_b": f"b {place}", "label": place / 4} for place in range(4)]
    for number in range(2):
        about = {"first": 2 * number, "inputs": 2, "tokens": 0, "labels": {}}
        store.write(number, to_json_lines(rows[2 * number : 2 * number + 2]), about)
    store.write_manifest(store.manifest({"identity": identity}, 2, complete=True))
    return store.folder


COMMANDS = {
    "output_dir": ["output_dir={old}"],
    "overwrite": ["output_dir={old}", "overwrite=true"],
    "resume": ["output_dir={new}", "resume={old}/checkpoints/last.ckpt"],
    "backbone": ["output_dir={new}", "backbone={old}"],
}


@pytest.mark.rotates
@pytest.mark.parametrize("overrides", COMMANDS.values(), ids=COMMANDS)
def test_a_training_refuses_a_run_and_changes_nothing(overrides, old, tiny_run, command, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in old.rglob("*") if path.is_file()}
    keys = [override.partition("=")[0] for override in overrides]
    base = [override for override in tiny_run if override.partition("=")[0] not in keys]
    outcome = command(*base, "quiet=true", *(override.format(old=old, new=tmp_path / "new") for override in overrides))
    said = outcome.err.strip().splitlines()
    assert (outcome.status, len(said)) == (2, 1), outcome.err
    assert "earlier" in said[0]
    assert {path: path.stat().st_mtime_ns for path in old.rglob("*") if path.is_file()} == before


def test_an_encoder_is_loaded_from_the_export_and_not_from_the_run(old, finished):
    with pytest.raises(InputError, match="earlier") as raised:
        load_encoder(old)
    assert (raised.value.key, raised.value.value) == ("encoder", old)
    texts = ["The ferry leaves.", "Bread rises."]
    (expected, _), (found, _) = (load_encoder(run).embed(texts) for run in (finished, old / "encoder"))
    assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
    assert f"Use {old / 'encoder'}" in raised.value.hint


@pytest.mark.parametrize("record", [MARKER, "results.json"])
def test_one_record_of_a_run_is_enough(record, old, finished, tmp_path):
    """A copy may lack the marker, which is a hidden file, or the results."""
    shutil.copytree(finished, tmp_path / "run")
    for name in {MARKER, "results.json"} - {record}:
        (tmp_path / "run" / name).unlink()
    load_encoder(tmp_path / "run")
    shutil.copy(old / record, tmp_path / "run" / record)
    with pytest.raises(InputError, match="earlier"):
        load_encoder(tmp_path / "run")


def test_checkpoints_and_results(old, finished):
    for load, name in ((load_checkpoint, "checkpoints/best.ckpt"), (read_run, "results.json")):
        load(finished / name)
        with pytest.raises(InputError, match="earlier") as raised:
            load(old / name)
        assert raised.value.location == str(old / name)


def test_a_comparison_names_a_run_once(old, tmp_path):
    from tests.forks import run_command

    done = run_command(["contrastive-encoders", "compare", f"runs=[{old}]", f"output={tmp_path / 'report'}"])
    assert (done.returncode, done.stderr.count("earlier")) == (2, 1), done.stderr


def test_a_data_set(pairs):
    def rows(path):
        found = RecordSource(str(path), PAIRS, columns=None, split="train", on_error="fail")
        return [record.texts for record in found]

    before = rows(pairs)
    assert len(before) == 4
    age(pairs / "manifest.json")
    with pytest.raises(InputError, match="earlier") as raised:
        rows(pairs)
    assert (raised.value.key, raised.value.value) == ("data.path", pairs)
    assert f"data.path={pairs}/*.jsonl" in raised.value.hint
    assert rows(f"{pairs}/*.jsonl") == before
    with pytest.raises(InputError, match="earlier") as raised:
        read_manifest(pairs)
    assert (raised.value.key, raised.value.value) == ("output", pairs)
    age(pairs / MARKER, None)
    with pytest.raises(InputError, match="earlier") as raised:
        check_owner("output", pairs, "data set")
    assert (raised.value.key, raised.value.value) == ("output", pairs)
    assert f"rm -r {pairs}" in raised.value.hint


def test_a_manifest_of_somebody_else_is_none_of_ours(pairs):
    """Many tools call a file manifest.json."""
    (pairs / "manifest.json").write_text('{"version": 1, "files": []}')
    assert len(list(RecordSource(str(pairs), PAIRS, columns=None, split="train", on_error="fail"))) == 4


def test_mined_negatives(tmp_path):
    output = tmp_path / "mined.jsonl"
    output.write_text("{}\n")
    record_path(output).write_text(json.dumps({"version": 2, "identity": {"a": 1}}))
    assert is_finished(output, {"a": 1}, overwrite=False)
    age(record_path(output), None)
    with pytest.raises(InputError, match="earlier"):
        is_finished(output, {"a": 1}, overwrite=False)
    assert not is_finished(output, {"a": 1}, overwrite=True)
