"""Inputs for the recipes of GenSE: files of several kinds, output folders with content, unknown keys."""

import json
import random
import sys

import pyarrow
import pyarrow.parquet
import pytest
from transformers import T5EncoderModel

from contrastive_encoders.core import InputError
from tests.synthesis.commands import here, rows_of
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


def words_for(place, output, *words):
    given = {"recipe": "gense", "generator": place / "t5", "output": output, "input": place / "in.txt"}
    given |= dict(word.split("=", 1) for word in [*SMALL, *OPEN, *words] if not word.startswith("+"))
    return [f"{key}={value}" for key, value in given.items()] + [word for word in words if word.startswith("+")]


def texts_of(folder):
    return [
        (row["premise"], *(row[key][0]["text"] for key in ("entailment", "contradiction"))) for row in rows_of(folder)
    ]


@pytest.fixture(scope="module")
def whole(place):
    here(*words_for(place, place / "whole"))
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


def test_a_folder_and_several_files_are_read_one_after_the_other(place, whole, shards, tmp_path):
    here(*words_for(place, tmp_path / "folder", f"input={shards}"))
    assert texts_of(tmp_path / "folder" / "scored") == texts_of(whole / "scored")
    files = ",".join(str(shards / name) for name in ("a.txt", "b.jsonl", "deeper/c.parquet"))
    here(*words_for(place, tmp_path / "folder", f"input=[{files}]"))  # finished: these are the files of the folder
    with pytest.raises(InputError, match=r"input\.sha256"):
        here(*words_for(place, tmp_path / "folder", f"input=[{shards / 'a.txt'}]"))
    with pytest.raises(InputError, match=r"corpus/out lies in input=.*would be read as input"):
        here(*words_for(place, shards / "out", f"input={shards}"))


def test_wrong_input_leaves_the_folder_to_the_corrected_command(place, tmp_path):
    T5EncoderModel(config_of("t5", len(tokenizer()))[1]).save_pretrained(tmp_path / "encoder")
    tokenizer().save_pretrained(tmp_path / "encoder")
    latin = tmp_path / "latin.txt"
    latin.write_bytes("über".encode("cp850"))  # 0x81, which cp1252 lacks
    output = tmp_path / "out"
    for word, says in (
        (f"generator={tmp_path / 'encoder'}", "T5EncoderModel has no decoder"),
        ("sentences.min_words=99", r"none of its 12 sentences is left \(too few words 12\)"),
        (f"sentences.exclude={latin}", "sentences.exclude=.*latin.txt:1: expected UTF-8"),
    ):
        with pytest.raises(InputError, match=says):
            here(*words_for(place, output, word, "overwrite=true"))
    here(*words_for(place, output, "overwrite=true"))
    assert len(rows_of(output / "scored")) == 12
    with pytest.raises(InputError, match=r"min_words is 99, there it was 8"):  # now it has content
        here(*words_for(place, output, "sentences.min_words=99"))


def test_a_scored_shard_that_is_lost_is_told_and_written_again(place, tmp_path):
    words = words_for(place, tmp_path / "out")
    here(*words)
    before = texts_of(tmp_path / "out" / "scored")
    (tmp_path / "out" / "scored" / "shard-00001.jsonl").unlink()
    again = ["recipe=gense_filter", f"input={tmp_path / 'out'}", f"output={tmp_path / 'again'}", "workers=1", *OPEN]
    with pytest.raises(InputError, match=r"1 of its 3 shards are not there.*shard-00001\.jsonl"):
        here(*again)
    here(*words)
    assert texts_of(tmp_path / "out" / "scored") == before
    here(*again)
    assert [row["premise"] for row in rows_of(tmp_path / "again")] == [
        row["premise"] for row in rows_of(tmp_path / "out")
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["+rules.treshold=0.8"], r"rules\.treshold=0\.8: expected .* The nearest is rules\.threshold"),
        (["generator={run}"], "a run that is not finished"),
        (["generator={empty}"], "neither config.json nor"),
        (["input={empty}"], "no file to read. Wanted .txt"),
        (["input=3"], "wanted a text or a list"),
    ],
)
def test_bad_input_is_one_sentence_and_claims_no_folder(place, tmp_path, words, says):
    for name in ("run/checkpoints", "empty"):
        (tmp_path / name).mkdir(parents=True)
    files = {name: tmp_path / name for name in ("run", "empty")}
    with pytest.raises(InputError, match=says):
        here(*words_for(place, tmp_path / "out", *(word.format(**files) for word in words)))
    assert not (tmp_path / "out").exists()


def test_retrieval_without_its_library_says_what_to_install(place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)  # as Python marks modules that cannot be imported
    words = [word for word in words_for(place, tmp_path / "out", "recipe=gense_retrieval") if "max_new" not in word]
    with pytest.raises(InputError, match=r"expected the package bm25s.*pip install"):
        here(*words)
    assert not (tmp_path / "out").exists()
