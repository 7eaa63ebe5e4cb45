"""Hub data sets by name, read by the hub's own library from a server that answers as the hub does."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.data import write_rows
from tests.hub import Hub

ROOT = Path(__file__).resolve().parents[2]
README = """---
configs:
- config_name: triplet
  data_files: [{split: train, path: triplet/train*}, {split: dev, path: triplet/dev*}]
- config_name: nested
  data_files: [{split: train, path: nested.parquet}]
- config_name: nli
  data_files: [{split: train, path: nli.parquet}]
---
"""
AWAY = "http://127.0.0.1:9"  # no server answers at this address
TRIPLETS = [{"anchor": f"a {i}", "positive": f"p {i}", "negative": f"n {i}"} for i in range(5)]
NESTED = [{"question": f"q {i}", "answer": {"text": [f"t {i}", "x"], "at": [i]}} for i in range(3)]
# Prints what is read with each set of keys, and what the manifest records about it
READ = """
import json, sys
from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sources import hub_datasets as hub_sets
from contrastive_encoders.datamodules.sources import row_schemas
from tests.data import RecordSource, TextSource

def read(path="owner/set", large=hub_sets.LARGE, kind="TRIPLETS", **keys):
    hub_sets.LARGE = large
    hub = hub_sets.HubKeys(**{key: keys.pop(key) for key in hub_sets.HubKeys._fields if key in keys})
    if kind == "text":
        source = TextSource(path, hub=hub, **keys)
        rows = [[one.text] for one in source.documents()]
    else:
        source = RecordSource(path, getattr(row_schemas, kind), hub=hub, **keys)
        rows = [[*one.texts, one.label] for one in source]
    streamed = [hasattr(one, "dataset") and type(one.dataset).__name__ == "IterableDataset" for one in source.files]
    return {"rows": rows, "manifest": source.manifest(), "fingerprint": source.fingerprint(), "streamed": streamed}

found = []
for keys in json.loads(sys.argv[1]):
    try:
        found.append(read(**keys))
    except InputError as error:
        found.append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    (folder / "triplet").mkdir()
    for split, rows in (("train", TRIPLETS), ("dev", TRIPLETS[:2])):
        pa.parquet.write_table(pa.Table.from_pylist(rows), folder / "triplet" / f"{split}-00000-of-00001.parquet")
    pa.parquet.write_table(pa.Table.from_pylist(NESTED), folder / "nested.parquet")
    features = {"label": {"names": ["neutral", "entailment"], "_type": "ClassLabel"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in ("premise", "hypothesis")}
    table = pa.table({"premise": ["p", "q"], "hypothesis": ["h", "i"], "label": [0, 1]})
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    pa.parquet.write_table(table.replace_schema_metadata(about), folder / "nli.parquet")
    (folder / "README.md").write_text(README)
    server = Hub("owner/set", folder, "datasets")
    yield server
    server.close()


@pytest.fixture
def read(hub, tmp_path):
    """Read the data in a separate process, because the hub's library keeps a state."""

    def run(*asked, endpoint=None):
        env = {"HF_ENDPOINT": endpoint or hub.url, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", READ, json.dumps(asked)]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.rotates
def test_datasets_are_copied_or_streamed_and_invalid_keys_are_refused(read, hub):
    """Two processes run the test, each of which imports all of datasets."""
    found, large, sliced, *wrong = read(
        {"name": "triplet"},
        {"name": "triplet", "large": 10, "split": "dev"},
        {"name": "triplet", "split": "train[:3]"},
        *(keys for keys, _ in WRONG),
    )
    for (keys, expected), said in zip(WRONG, wrong, strict=True):
        assert isinstance(said, str), keys
        assert not lacking(said, expected)
        assert "rename" not in said.lower()
    assert found["rows"] == [[*row.values(), None] for row in TRIPLETS]
    (said,) = found["manifest"]["hub"]
    size = (hub.folder / "triplet" / "train-00000-of-00001.parquet").stat().st_size
    assert (said["id"], said["name"], said["commit"], said["bytes"]) == ("owner/set", "triplet", hub.commit, size)
    assert (found["streamed"], large["streamed"]) == ([False], [True])
    assert large["rows"] == found["rows"][:2]
    assert len(sliced["rows"]) == 3
    away, other = read({"name": "triplet"}, {"path": "owner/other"}, endpoint=AWAY)
    assert away["rows"] == found["rows"]
    assert away["fingerprint"] == found["fingerprint"]
    assert not lacking(other, ["data.path=owner/other", "network"])


@pytest.mark.slow  # a process that imports all of datasets
def test_columns_inside_of_others_documents_and_relations_by_their_names(read):
    nested, text, nli, lists = read(
        {"name": "nested", "kind": "QA", "columns": ["question", "answer.text.0"]},
        {"name": "nested", "kind": "text", "column": "question"},
        {"name": "nli", "kind": "NLI"},
        {"name": "nested", "kind": "QA", "columns": ["question", "answer.text"]},
    )
    assert nested["rows"] == [[f"q {i}", f"t {i}", None] for i in range(3)]
    assert text["rows"] == [[f"q {i}"] for i in range(3)]
    assert [row[-1] for row in nli["rows"]] == [1.0, 0.0]  # neutral, entailment
    assert lists["rows"] == [[f"q {i}", f"t {i}", "x", None] for i in range(3)]  # a list of positives


WRONG = [
    ({}, ["data.name", "triplet", "nested", "nli"]),
    ({"name": "trplet"}, ["'trplet'", "triplet", "nested", "nli"]),
    ({"name": "triplet", "split": "tain"}, ["data.split=tain", "train, dev"]),
    ({"name": "triplet", "split": "train[:2]", "streaming": True}, ["data.streaming=true: "]),
    ({"name": "triplet", "columns": ["a", "b"]}, ["'anchor', 'positive', 'negative'", "data.columns=["]),
    ({"path": "owner/sett"}, ["data.path=owner/sett", "HF_TOKEN"]),
]


def lacking(said, expected):
    """Return the arguments that are missing."""
    return [words for words in expected if words not in said]


@pytest.mark.slow  # a process that imports all of datasets
def test_what_lies_here_comes_first_and_a_folder_may_have_the_hubs_layout(read, hub, tmp_path):
    write_rows(tmp_path / "here" / "a.jsonl", [{"anchor": "here", "positive": "too"}])
    (tmp_path / "owner").mkdir()
    (tmp_path / "here").rename(tmp_path / "owner" / "set")
    local, mistyped, folder = read(
        {}, {"path": "owner/st"}, {"path": str(hub.folder), "name": "triplet", "split": "dev"}
    )
    assert local["rows"] == [["here", "too", None]]
    assert not lacking(mistyped, ["owner/st", "owner/set"])
    assert folder["rows"] == [[*row.values(), None] for row in TRIPLETS[:2]]
    assert folder["manifest"]["hub"][0]["id"] == str(hub.folder)
