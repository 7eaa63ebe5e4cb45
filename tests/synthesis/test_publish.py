"""A published data set as ``datasets`` and ``data=dino`` see it, against the JSON lines that it was made from."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources.row_schemas import PAIRS
from contrastive_encoders.io.output_directory import MARKER
from contrastive_encoders.synthesis.report import publish as publish_module
from contrastive_encoders.synthesis.report.actions import Afterwards
from contrastive_encoders.synthesis.report.cards import write_label_card
from contrastive_encoders.synthesis.report.publish import publish
from contrastive_encoders.synthesis.shards.store import ShardStore, as_lines
from tests.data import RecordSource

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [' A "quoted"\u2028 one ', "Ä\n", "矛盾", "", "x" * 2000, "NA"]


def data_set(folder, entries, kind="x2", shard=4):
    """As a synthesis leaves it."""
    store, labels = ShardStore(folder), {entry["label"] for entry in entries} or {"1"}
    for number in range(max(1, -(-len(entries) // shard))):
        part = entries[number * shard : (number + 1) * shard]
        own = {label: sum(entry["label"] == label for entry in part) for label in labels}
        counts = {label: {"samples": n + 1, "accepted": n, "rejected": {"empty": 1}} for label, n in own.items()}
        store.write(number, as_lines(part), {"first": 0, "inputs": 1, "tokens": 1, "labels": counts})
    spec = {"task_name": "t", "labels": {name: {"instruction": 'x "', "counter_labels": []} for name in sorted(labels)}}
    identity = {"kind": kind, "spec": spec, "generator": {}, "precision": "fp32", "decoding": {}, "plan": {}}
    manifest = store.manifest({"identity": identity, "generator": {"name": "toy"}}, number + 1, complete=True)
    store.write_manifest(manifest)
    (folder / "report.md").write_text("# Report")
    write_label_card(folder, manifest)
    return folder


def pairs(number):
    texts = [TEXTS[place % len(TEXTS)] for place in range(number)]
    return [{"text_a": f"x{n}", "text_b": text, "label": ("1", "0")[n % 2]} for n, text in enumerate(texts)]


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Pairs with the first sentences that were written for them; files of two groups of three rows."""
    monkeypatch.setattr(publish_module, "ROWS_OF_A_GROUP", 3)
    data_set(tmp_path / "set" / "x1", [{"text_a": "x0", "text_b": None, "label": "1"}], kind="x1")
    return data_set(tmp_path / "set", pairs(14))


def test_datasets_loads_both_configurations(source, tmp_path):
    datasets = pytest.importorskip("datasets")
    assert publish(source, tmp_path / "hub", overwrite=False) == 14
    load = {"split": "train", "cache_dir": str(tmp_path / "cache")}
    assert list(datasets.load_dataset(str(tmp_path / "hub"), **load)) == pairs(14)
    first = datasets.load_dataset(str(tmp_path / "hub"), "x1", **load)
    assert list(first) == [{"text_a": "x0", "text_b": None, "label": "1"}]
    assert first.features["text_b"].dtype == "string"
    found = {str(path.relative_to(tmp_path / "hub")) for path in (tmp_path / "hub").rglob("*") if path.is_file()}
    parquet = {"shard-00000.parquet", "x1/shard-00000.parquet"}
    beside = {"README.md", "manifest.json", "report.md"}
    assert found == parquet | beside | {f"x1/{name}" for name in beside} | {MARKER}
    front = yaml.safe_load((tmp_path / "hub" / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert [one["data_files"][0]["path"] for one in front["configs"]] == ["shard-*.parquet", "x1/shard-*.parquet"]


def test_training_reads_the_same_rows_of_either_form(source, tmp_path):
    publish(source, tmp_path / "hub", overwrite=False)
    forms = [list(RecordSource(str(folder), PAIRS, on_error="skip")) for folder in (source, tmp_path / "hub")]
    read = [[(record.texts, record.label) for record in form] for form in forms]
    assert read[0] == read[1]
    assert len(read[0]) == sum(bool(pair["text_b"].strip()) for pair in pairs(14))


def test_who_is_told_of_overwrite_does_not_throw_texts_away_with_it(source, tmp_path):
    """The advice is a command that writes no texts: overwrite=true would take the shards with it there."""
    publish(source, tmp_path / "hub", overwrite=False)
    before = sorted(path.name for path in source.iterdir())
    with pytest.raises(InputError) as refused:
        Afterwards(None, None, None, str(tmp_path / "hub")).check(source, overwrite=False)
    command = [
        sys.executable,
        "-m",
        "contrastive_encoders",
        *str(refused.value).split("contrastive-encoders ")[1].split(),
    ]
    (tmp_path / "hub" / "report.md").unlink()
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "hub" / "report.md").is_file()
    assert sorted(path.name for path in source.iterdir()) == before


@pytest.mark.parametrize(("output", "target"), [("set", "set"), ("set", "set/hub"), ("new/set", "new")])
def test_a_publication_lies_beside_its_data_set(tmp_path, output, target):
    """Said before anything is written: neither is there yet."""
    with pytest.raises(InputError, match="one within the other"):
        Afterwards(None, None, None, str(tmp_path / target)).check(tmp_path / output, overwrite=False)


def test_a_publication_that_was_killed_leaves_nothing_after_the_next(source, tmp_path):
    killed = tmp_path / ".hub.part"
    code = (
        "import os, sys; from pathlib import Path; import contrastive_encoders.synthesis.report.publish as p; "
        "p._write_rows = lambda *_: os._exit(9);"
        "p.publish(*map(Path, sys.argv[1:]), overwrite=False)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(source), str(tmp_path / "hub")], cwd=ROOT, check=False)
    assert (died.returncode, killed.is_dir(), (tmp_path / "hub").exists()) == (9, True, False)
    assert publish(source, tmp_path / "hub", overwrite=False) == 14
    assert not killed.exists()


def test_shards_that_are_not_the_manifests_publish_nothing(source, tmp_path):
    (source / "shard-00001.jsonl").unlink()
    with pytest.raises(InputError, match=r"its shards hold 10 rows, and its manifest\.json says 14"):
        publish(source, tmp_path / "hub", overwrite=False)
    with pytest.raises(InputError, match="nothing to publish"):
        publish(data_set(tmp_path / "empty", []), tmp_path / "hub", overwrite=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "set"], "nothing half-written is left"


def test_triplets_too_but_nobody_labels_them(tmp_path):
    """Rows of other columns, as GenSE writes them."""
    store, rows = ShardStore(tmp_path / "set"), [{"premise": "a", "p_entailment": 0.5}, {"premise": "b"}]
    counts = {"triplets": {"samples": 2, "accepted": 2, "rejected": {}}}
    store.write(0, as_lines(rows), {"first": 0, "inputs": 1, "tokens": 1, "labels": counts})
    store.write_manifest(store.manifest({"identity": {"kind": "gense"}}, 1, complete=True))
    (tmp_path / "set" / "README.md").write_text("path: shard-*.jsonl")
    assert publish(tmp_path / "set", tmp_path / "hub", overwrite=False) == 2
    table = pyarrow.parquet.read_table(tmp_path / "hub" / "shard-00000.parquet")
    assert table.to_pylist() == [{"premise": "a", "p_entailment": 0.5}, {"premise": "b", "p_entailment": None}]
    assert (tmp_path / "hub" / "README.md").read_text() == "path: shard-*.parquet"
    with pytest.raises(InputError, match="holds triplets"):
        Afterwards(None, 5, None, None).do(tmp_path / "set", seed=0, device="cpu", overwrite=False, as_trained=list)
