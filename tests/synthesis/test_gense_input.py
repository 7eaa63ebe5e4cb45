"""Inputs for the recipes of GenSE: files of several kinds, output folders with content, unknown keys."""

import json
import random
import re
import sys

import pyarrow
import pyarrow.parquet
import pytest
from transformers import T5EncoderModel

from tests.synthesis.commands import here, refusal, rows_of
from tests.synthesis.toy_t5 import WORDS, config_of, save, tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")

OPEN = ["rules.agree=false", "rules.threshold=null", "rules.drop_near_copies=false", "rules.min_hypothesis_words=0"]
SMALL = ["max_new_tokens=6", "shard_size=4", "workers=1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    save(folder / "t5")
    pick = random.Random(5)
    lines = [" ".join(pick.choices(WORDS, k=pick.randint(8, 12))).capitalize() + "." for _ in range(12)]
    (folder / "in.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def overrides_for(place, output, *overrides):
    given = {"recipe": "gense", "generator": place / "t5", "output": output, "input": place / "in.txt"}
    given |= dict(override.split("=", 1) for override in [*SMALL, *OPEN, *overrides] if not override.startswith("+"))
    return [f"{key}={value}" for key, value in given.items()] + [
        override for override in overrides if override.startswith("+")
    ]


def texts_of(folder):
    return [
        (row["premise"], *(row[key][0]["text"] for key in ("entailment", "contradiction"))) for row in rows_of(folder)
    ]


@pytest.fixture(scope="module")
def whole(place):
    here(*overrides_for(place, place / "whole"))
    return place / "whole"


@pytest.fixture
def shards(place, tmp_path):
    """Write the same sentences in files of three kinds, with the other contents of such folders."""
    lines, folder = (place / "in.txt").read_text().splitlines(), tmp_path / "corpus"
    (folder / "deeper").mkdir(parents=True)
    (folder / "a.txt").write_text("\n".join(lines[:3]) + "\n")
    (folder / "b.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines[3:7]))
    pyarrow.parquet.write_table(pyarrow.table({"id": range(5), "text": lines[7:]}), folder / "deeper" / "c.parquet")
    (folder / "README.md").write_text("a corpus")
    (folder / "dataset_info.json").write_text('{"splits": 1}')
    (folder / ".hidden.txt").write_text("one two three four five six seven eight\n")
    return folder


def test_folders_and_lists_of_files_are_read_in_order(place, whole, shards, tmp_path):
    here(*overrides_for(place, tmp_path / "folder", f"input={shards}"))
    assert texts_of(tmp_path / "folder" / "scored") == texts_of(whole / "scored")
    files = ",".join(str(shards / name) for name in ("a.txt", "b.jsonl", "deeper/c.parquet"))
    here(*overrides_for(place, tmp_path / "folder", f"input=[{files}]"))  # finished: these are the files of the folder
    error = refusal(*overrides_for(place, tmp_path / "folder", f"input=[{shards / 'a.txt'}]"))
    assert (error.value, "input.sha256" in error.expected) == (tmp_path / "folder", True)
    error = refusal(*overrides_for(place, shards / "out", f"input={shards}"))
    assert (error.key, error.value, f"input={shards}" in error.expected) == ("output", shards / "out", True)


def test_the_corrected_command_can_use_the_folder_of_a_failed_one(place, tmp_path):
    T5EncoderModel(config_of("t5", len(tokenizer()))[1]).save_pretrained(tmp_path / "encoder")
    tokenizer().save_pretrained(tmp_path / "encoder")
    latin = tmp_path / "latin.txt"
    latin.write_bytes("über".encode("cp850"))  # 0x81, which cp1252 lacks
    output = tmp_path / "out"
    for override, facts in (
        (f"generator={tmp_path / 'encoder'}", ["generator=", "T5EncoderModel"]),
        ("sentences.min_words=99", ["input: ", " 12 ", " 12)"]),
        (f"sentences.exclude={latin}", ["sentences.exclude", f"{latin}:1"]),
    ):
        error = refusal(*overrides_for(place, output, override, "overwrite=true"))
        assert not [fact for fact in facts if fact not in str(error)], error
    here(*overrides_for(place, output, "overwrite=true"))
    assert len(rows_of(output / "scored")) == 12
    error = refusal(*overrides_for(place, output, "sentences.min_words=99"))  # now it has content
    assert (error.value, bool(re.search("min_words .* 99 .* 8", error.expected))) == (output, True)


def test_a_missing_scored_shard_is_reported_and_written_again(place, tmp_path):
    overrides = overrides_for(place, tmp_path / "out")
    here(*overrides)
    before = texts_of(tmp_path / "out" / "scored")
    (tmp_path / "out" / "scored" / "shard-00001.jsonl").unlink()
    again = ["recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'again'}", "workers=1", *OPEN]
    error = refusal(*again)
    assert (error.key, error.location) == ("input", str(tmp_path / "out" / "scored"))
    assert (re.findall(r"\d+", error.value), "shard-00001.jsonl" in error.expected) == (["2", "3"], True)
    here(*overrides)
    assert texts_of(tmp_path / "out" / "scored") == before
    here(*again)
    assert [row["premise"] for row in rows_of(tmp_path / "again")] == [
        row["premise"] for row in rows_of(tmp_path / "out")
    ]


@pytest.mark.parametrize(
    ("overrides", "facts"),
    [
        (["+rules.treshold=0.8"], ["rules.treshold", "rules.threshold"]),
        (["generator={run}"], ["generator=", "finished"]),
        (["generator={empty}"], ["generator=", "config.json"]),
        (["input={empty}"], ["empty, input: ", ".txt"]),
        (["input=3"], ["input=3"]),
    ],
)
def test_wrong_input_is_refused_and_claims_no_folder(place, tmp_path, overrides, facts):
    for name in ("run/checkpoints", "empty"):
        (tmp_path / name).mkdir(parents=True)
    files = {name: tmp_path / name for name in ("run", "empty")}
    error = refusal(*overrides_for(place, tmp_path / "out", *(override.format(**files) for override in overrides)))
    assert not [fact for fact in facts if fact not in str(error)], error
    assert not (tmp_path / "out").exists()


def test_retrieval_requires_its_package(place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)  # as Python marks modules that cannot be imported
    overrides = [
        override
        for override in overrides_for(place, tmp_path / "out", "recipe=gense_retrieval")
        if "max_new" not in override
    ]
    error = refusal(*overrides)
    assert (error.key, error.value, "bm25s" in error.expected) == ("recipe", "gense_retrieval", True)
    assert "pip install" in error.hint
    assert not (tmp_path / "out").exists()
