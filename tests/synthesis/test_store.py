"""Shards and manifest: after any kill, the existing files are complete and accounted for."""

import hashlib
import json
import re

import pytest

from contrastive_encoders.core import InputError
from contrastive_encoders.io.output_directory import MARKER
from contrastive_encoders.synthesis.shards import store as store_module
from contrastive_encoders.synthesis.shards.store import ShardStore, read_entries, read_manifest, to_json_lines
from tests.damage import flip

ABOUT = {"first": 0, "inputs": 2, "tokens": 9}
IDENTITY = {"spec": {"task_name": "t"}, "decoding": {"top_p": 0.9}}


def entry(text, label="1", x2="B"):
    return {"text_a": text, "text_b": x2, "label": label}


def counts(accepted, rejected=0):
    return {
        "1": {"samples": accepted + rejected, "accepted": accepted, "rejected": {"empty": rejected} if rejected else {}}
    }


def write(store, number, *texts, rejected=0):
    return store.write(number, to_json_lines(map(entry, texts)), {**ABOUT, "labels": counts(len(texts), rejected)})


def test_a_shard_is_lines_of_json_with_its_hash_in_the_manifest(tmp_path):
    store = ShardStore(tmp_path)
    write(store, 0, " A\u2028 é", "B", rejected=1)
    write(store, 1, "C", rejected=2)
    manifest = store.manifest({"identity": IDENTITY}, 2, complete=True)
    store.write_manifest(manifest)
    assert read_manifest(tmp_path) == manifest
    data = (tmp_path / "shard-00000.jsonl").read_bytes()
    assert [json.loads(line) for line in data.decode().split("\n")[:-1]] == [entry(" A\u2028 é"), entry("B")]
    assert manifest["shards"][0]["sha256"] == hashlib.sha256(data).hexdigest()
    assert [shard["entries"] for shard in manifest["shards"]] == [2, 1]
    total = manifest["counts"]
    assert (total["samples"], total["accepted"], total["yield"], total["tokens"]) == (6, 3, 0.5, 18)
    assert total["rejected"] == {"empty": 3} == total["labels"]["1"]["rejected"]
    assert [one["text_a"] for one in read_entries(tmp_path)] == [" A\u2028 é", "B", "C"]


@pytest.mark.parametrize("survives", [0, 1])
def test_a_kill_between_the_record_and_the_shard_leaves_it_missing(tmp_path, monkeypatch, survives):
    store, written = ShardStore(tmp_path), []

    def until_killed(real):
        def write(path, data, **how):
            if len(written) == survives:
                raise KeyboardInterrupt
            written.append(path)
            real(path, data, **how)

        return write

    for name in ("write_record", "atomic_write"):
        monkeypatch.setattr(store_module, name, until_killed(getattr(store_module, name)))
    with pytest.raises(KeyboardInterrupt):
        write(store, 0, "A")
    monkeypatch.undo()
    assert not store.is_done(0)
    assert store.manifest({"identity": IDENTITY}, 1, complete=False)["counts"]["accepted"] == 0
    write(store, 0, "A")
    assert store.is_done(0)


def test_a_changed_byte_is_detected(tmp_path, caplog):
    store = ShardStore(tmp_path)
    store.claim(IDENTITY, overwrite=False)
    write(store, 0, "A", "B")
    store.write_manifest(store.manifest({"identity": IDENTITY}, 1, complete=True))
    flip(tmp_path / "shard-00000.jsonl")
    assert not store.is_done(0)
    assert [record.args for record in caplog.records] == [(tmp_path / "shard-00000.jsonl",)]
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError) as error:
        read_manifest(tmp_path)
    assert error.value.location == str(tmp_path / "manifest.json")
    assert not store.claim(IDENTITY, overwrite=True), "the marker identifies the owner"
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_a_shard_without_entries_is_done_and_has_no_file(tmp_path):
    store = ShardStore(tmp_path)
    write(store, 0, rejected=3)
    assert store.is_done(0)
    assert not list(tmp_path.glob("shard-*"))
    manifest = store.manifest({"identity": IDENTITY}, 1, complete=True)
    assert manifest["shards"] == []
    assert manifest["counts"]["samples"] == 3


def test_a_folder_is_claimed_by_one_data_set(tmp_path):
    store = ShardStore(tmp_path / "out")
    assert not store.claim(IDENTITY, overwrite=False)
    write(store, 0, "A")
    store.write_manifest(store.manifest({"identity": IDENTITY}, 2, complete=False))
    assert not store.claim(IDENTITY, overwrite=False), "to be continued"
    write(store, 1, "B")
    store.write_manifest(store.manifest({"identity": IDENTITY}, 2, complete=True))
    assert store.claim(IDENTITY, overwrite=False), "finished"
    with pytest.raises(InputError) as error:
        store.claim({**IDENTITY, "decoding": {"top_p": 0.5}}, overwrite=False)
    assert (error.value.key, error.value.value) == ("output", tmp_path / "out")
    assert re.search(r"top_p .* 0\.5 .* 0\.9", error.value.expected)
    assert "overwrite=true" in error.value.hint
    (tmp_path / "out" / "shard-00001.jsonl").unlink()
    assert not store.claim(IDENTITY, overwrite=False), "a shard is missing"
