"""``contrastive-encoders embed``: row i is the embedding of the i-th text, even after interruptions."""

import errno
import gzip
import json
import multiprocessing
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from contrastive_encoders.cli.embed import run
from contrastive_encoders.cli.main import main
from contrastive_encoders.core import EncoderPrompts, InputError, OutputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.export.input_texts import open_texts
from contrastive_encoders.export.sentence_transformers import export_encoder, parts_of
from contrastive_encoders.export.vector_file import VectorFile
from tests.conftest import SENTENCES
from tests.forks import Started
from tests.in_process import run_here
from tests.variations import slow_after

TEXTS = [
    "tea and salt",
    "",
    "  ",
    "gull",
    "a\u2028b",
    "rope\tfern",
    "لوح",
    "🐦 jade",
    *(f"coal {n} sand" for n in range(60)),
]


def command(*overrides) -> None:
    run_here("embed", run, overrides)


def lines(path: Path, texts: list[str], end: str = "\n") -> Path:
    path.write_bytes(end.join(texts).encode())
    return path


def packed(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


def parquet(path: Path, texts: list, name: str = "text") -> Path:
    pyarrow.parquet.write_table(pyarrow.table({"id": range(len(texts)), name: texts}), path, row_group_size=10)
    return path


JSON = "".join(json.dumps({"id": i, "text": text}) + ("\n\n" if i == 3 else "\n") for i, text in enumerate(TEXTS))
WRITERS = {
    "txt of Windows": lambda folder: lines(folder / "t.txt", ["\ufeff" + TEXTS[0], *TEXTS[1:]], "\r\n"),
    "txt.gz": lambda folder: packed(folder / "t.txt.gz", "\n".join(TEXTS).encode()),
    "jsonl": lambda folder: lines(folder / "t.jsonl", [JSON]),
    "parquet": lambda folder: parquet(folder / "t.parquet", TEXTS),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("window", [7, 68, 1000])
def test_every_text_keeps_its_place(tmp_path, small_word_vectors, kind, window):
    path = WRITERS[kind](tmp_path)
    command(f"encoder={small_word_vectors}", f"input={path}", f"output={tmp_path / 'o.npy'}", f"chunk_rows={window}")
    found = np.load(tmp_path / "o.npy")
    np.testing.assert_array_equal(found, load_encoder(small_word_vectors).embed(TEXTS).numpy())
    assert {p.name for p in tmp_path.iterdir()} == {path.name, "o.npy", "o.npy.json"}


def test_html_is_removed_as_in_training_and_empty_texts_are_counted(tmp_path, small_word_vectors, caplog):
    """The texts without tags are written by hand."""
    caplog.set_level("WARNING")
    path = parquet(tmp_path / "t.parquet", ["<p>tea &amp; <b>salt</b></p>", "", "<br>", "gull"])
    command(f"encoder={small_word_vectors}", f"input={path}", f"output={tmp_path / 'o.npy'}", "strip_html=true")
    expected = load_encoder(small_word_vectors).embed(["tea & salt", "", "", "gull"]).numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), expected)
    assert ["2 of 4" in message for message in caplog.messages] == [True]


def test_files_of_a_folder_are_one_after_the_other(tmp_path, small_word_vectors):
    folder = tmp_path / "texts"
    folder.mkdir()
    parquet(folder / "b.parquet", TEXTS[3:], "body")
    (folder / "c.csv").write_text("body\nsalt\n")
    lines(folder / "a.txt", [*TEXTS[:3], ""])
    command(
        f"encoder={small_word_vectors}",
        f"input={folder}",
        "column=body",
        f"output={tmp_path / 'o.npy'}",
        "chunk_rows=7",
    )
    expected = load_encoder(small_word_vectors).embed([*TEXTS, "salt"]).numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "o.npy"), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parquet_has_the_texts_beside_the_vectors(tmp_path, small_word_vectors, dtype):
    path = parquet(tmp_path / "t.parquet", TEXTS, "body")
    overrides = [f"encoder={small_word_vectors}", f"input={path}", "column=body", "chunk_rows=9", f"dtype={dtype}"]
    command(*overrides, f"output={tmp_path / 'o.parquet'}")
    table = pyarrow.parquet.read_table(tmp_path / "o.parquet")
    assert table["body"].to_pylist() == TEXTS
    found = np.array(table["embedding"].to_pylist())
    np.testing.assert_array_equal(found, load_encoder(small_word_vectors).embed(TEXTS).numpy().astype(dtype))
    assert {p.name for p in tmp_path.iterdir()} == {"t.parquet", "o.parquet", "o.parquet.json"}


@pytest.mark.advice(
    "contrastive_encoders.export.vector_file:VectorFile._check",
    "contrastive_encoders.io.output_directory:FINISHED",
)
def test_a_finished_file_is_left_alone_and_another_job_refused(tmp_path, small_word_vectors, caplog):
    path = lines(tmp_path / "t.txt", TEXTS)
    overrides = [f"encoder={small_word_vectors}", f"input={path}", f"output={tmp_path / 'o.npy'}"]
    command(*overrides)
    before = (tmp_path / "o.npy").stat().st_mtime_ns
    (tmp_path / "o.npy.part").write_text("somebody's, which has no .progress")
    with caplog.at_level("INFO"):
        command(*overrides)
    assert "overwrite=true" in caplog.text
    (tmp_path / "o.npy.part").unlink()  # it still exists
    with pytest.raises(InputError) as refused:
        command(*overrides, "dtype=float16")
    assert (refused.value.key, refused.value.value) == ("output", tmp_path / "o.npy")
    assert re.search("dtype .*float16 .*float32", refused.value.hint)
    assert "overwrite=true" in refused.value.hint
    other = tmp_path / "other" / small_word_vectors.name
    other.parent.mkdir()
    other.write_text(small_word_vectors.read_text().replace("1", "2"))
    with pytest.raises(InputError) as refused:
        command(f"encoder={other}", *overrides[1:])
    assert re.search(r"encoder .*\b[0-9a-f]{8} .*\b[0-9a-f]{8}[.]", refused.value.hint)
    lines(path, TEXTS[:-1])
    with pytest.raises(InputError) as refused:
        command(*overrides)
    assert re.search(r"input .*t\.txt", refused.value.hint)
    assert (tmp_path / "o.npy").stat().st_mtime_ns == before
    command(*overrides, "overwrite=true")
    assert len(np.load(tmp_path / "o.npy")) == len(TEXTS) - 1


def test_an_output_inside_the_input_is_refused_at_once(tmp_path):
    lines(tmp_path / "t.txt", TEXTS)
    for given in (tmp_path, tmp_path / "*"):
        with pytest.raises(InputError) as error:
            command("encoder=nowhere", f"input={given}", f"output={tmp_path / 'o.npy'}")
        assert (error.value.key, error.value.value) == ("output", tmp_path / "o.npy")
    assert [one.name for one in tmp_path.iterdir()] == ["t.txt"]


def test_a_maximum_length_of_0_is_refused_before_anything_is_read(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["embed", "encoder=nowhere", "input=nowhere.txt", f"output={tmp_path / 'o.npy'}", "max_length=0"])
    assert stopped.value.code == 2
    assert re.fullmatch(r"contrastive-encoders embed: max_length=0: .*1 or more.*\n", capsys.readouterr().err)


def marks(path: Path) -> int:
    return path.read_bytes().split(b"\n", 1)[1].count(b"\1") if path.is_file() else 0


@pytest.mark.parametrize("sent", slow_after(1, [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
def test_a_job_that_was_killed_goes_on(tmp_path, tiny_mlm, sent):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["rain", "orchard", "clock"], rng.integers(1, 60))) + f" {i}" for i in range(1000)]
    path, output = lines(tmp_path / "t.txt", texts), tmp_path / "o.npy"
    overrides = [f"encoder={tiny_mlm}", f"input={path}", f"output={output}", "chunk_rows=20"]
    job = Started("embed", overrides)
    job.wait_for(lambda: marks(tmp_path / "o.npy.progress") >= 5)
    job.kill(sent)
    assert job.finish().status == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[sent]
    assert not output.exists()
    before = marks(tmp_path / "o.npy.progress")
    assert 5 <= before < 50
    status, _, told = Started("embed", overrides).finish()
    assert status == 0, told
    assert f"{before * 20} of 1000 texts" in told
    command(*overrides[:2], f"output={tmp_path / 'whole.npy'}", "chunk_rows=20")
    np.testing.assert_array_equal(np.load(output), np.load(tmp_path / "whole.npy"))


@pytest.mark.rotates
@pytest.mark.parametrize("name", ["o.npy", "o.parquet"])
def test_killed_wherever_the_file_gets_its_name_it_is_whole_or_goes_on(tmp_path, name):
    """Kills happen at each file that is opened, renamed or removed after all 8-bit embeddings exist."""
    texts = open_texts(str(lines(tmp_path / "t.txt", TEXTS)), None)
    rows = np.random.default_rng(0).normal(size=(len(TEXTS), 8)).astype(np.float32)
    identity = {"encoder": "e", "rows": len(TEXTS), "width": 8, "dtype": "int8", "chunk_rows": 40}

    def write(folder: Path, die_at: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        file = VectorFile(folder / name, identity)
        if file.claim(overwrite=False):
            return
        left = [die_at]

        def look(event: str, _: object) -> None:
            if event in ("open", "os.rename", "os.remove"):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        with file.open():
            for number in np.flatnonzero(~file.written_windows()):
                file.write(number, rows[40 * number : 40 * (number + 1)])
            sys.addaudithook(look)
            file.finish(texts)
            os._exit(0)

    def died(folder: Path, die_at: int = 0) -> bool:
        child = multiprocessing.get_context("fork").Process(target=write, args=(folder, die_at))
        child.start()
        child.join()
        return child.exitcode == -signal.SIGKILL

    def left_in(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert not died(tmp_path / "whole")
    whole, kills = left_in(tmp_path / "whole"), 0
    while died(tmp_path / str(kills), kills + 1):
        died(tmp_path / str(kills))
        assert left_in(tmp_path / str(kills)) == whole
        kills += 1
    assert kills >= 15
    assert whole.keys() == {name, f"{name}.json", f"{name}.ranges.npy"}


@pytest.mark.slow  # two workers
def test_two_workers_make_the_same_file(tmp_path, tiny_mlm):
    texts = [f"{'salt ' * (i % 40)}{i}" for i in range(1500)]
    path = lines(tmp_path / "t.txt", texts)
    overrides = [f"encoder={tiny_mlm}", f"input={path}", "chunk_rows=20"]
    command(*overrides, f"output={tmp_path / 'two.parquet'}", "devices=2")
    command(*overrides, f"output={tmp_path / 'one.parquet'}")
    two, one = (pyarrow.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("two", "one"))
    assert two.equals(one)


@pytest.mark.parametrize(
    ("name", "content", "overrides", "message"),
    [
        ("t.txt", "ä\n".encode() + b"b\xff\nc", [], "^t.txt:2: .*UTF-8.* encoding=NAME[.]$"),
        ("t.csv", b"title\na\n", [], "^t.csv: .*'title'[.] .*column "),
        ("t.txt", b"a", ["column=text"], "^column=text: "),
        ("t.md", b"a", ["column=text"], "^column=text: "),
        ("t.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:40], [], "^t.txt.gz.*gzip"),
        ("t.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', [], "^t.jsonl:2: .*'txt'"),
        ("t.txt", b"a", ["output=o.csv"], "^output=o.csv: .*[.]npy"),
        ("t.txt", b"a", ["dtype=int8"], "^quantization_ranges=null: "),
        ("t.txt", b"a", ["dtype=binary", "quantization_ranges=x.npy"], "^quantization_ranges=x.npy: .* dtype=binary"),
    ],
)
def test_wrong_input_is_told_in_one_message(
    tmp_path, small_word_vectors, monkeypatch, name, content, overrides, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        command(f"encoder={small_word_vectors}", f"input={name}", "output=o.npy", *overrides)
    assert not (tmp_path / "o.npy").exists()


def test_a_damaged_line_late_in_the_file_loses_nothing(tmp_path, small_word_vectors):
    path = tmp_path / "t.txt"
    path.write_bytes("tüa\n".encode() * 50 + b"\xff\xff\n")
    overrides = [f"encoder={small_word_vectors}", f"input={path}", f"output={tmp_path / 'o.npy'}", "chunk_rows=10"]
    with pytest.raises(InputError) as refused:
        command(*overrides)
    assert f"{path}:51" in str(refused.value)
    assert marks(tmp_path / "o.npy.progress") == 5


def test_a_value_beyond_float16_is_refused(tmp_path):
    (tmp_path / "big.vec").write_text("1 2\ntea 1e9 2\n")
    path = lines(tmp_path / "t.txt", ["tea"])
    with pytest.raises(InputError) as refused:
        command(f"encoder={tmp_path / 'big.vec'}", f"input={path}", f"output={tmp_path / 'o.npy'}", "dtype=float16")
    assert (refused.value.key, refused.value.value) == ("dtype", "float16")


def test_a_full_disk_is_reported_before_anything_is_computed(tmp_path, small_word_vectors, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    path = lines(tmp_path / "t.txt", TEXTS)
    with pytest.raises(OutputError, match=r"o\.npy: "):
        command(f"encoder={small_word_vectors}", f"input={path}", f"output={tmp_path / 'o.npy'}")
    assert [p.name for p in tmp_path.iterdir()] == ["t.txt"]


def test_other_settings_of_the_encoder_are_shown_instead_of_hashes(tmp_path, tiny_bert):
    path = lines(tmp_path / "t.txt", TEXTS)
    overrides = [f"encoder={tiny_bert}", f"input={path}", f"output={tmp_path / 'o.npy'}"]
    command(*overrides)
    with pytest.raises(InputError) as refused:
        command(*overrides, "max_length=7", "dtype=float16")
    assert re.search(r"max_length .*\b7 .*; dtype .*float16 .*float32\.", refused.value.hint)
    assert "encoder" not in refused.value.hint
    record = json.loads((tmp_path / "o.npy.json").read_text())
    del record["encoder_settings"]  # as in a file of an earlier version
    (tmp_path / "o.npy.json").write_text(json.dumps(record))
    command(*overrides)


def test_a_role_is_the_prompt_of_such_texts(tmp_path, tiny_bert):
    prompts = EncoderPrompts({"query": "the river: ", "passage": "old maps: "})
    parts = {**parts_of(load_encoder(tiny_bert, device="cpu")), "prompts": prompts}
    folder = export_encoder(tmp_path / "encoder", **parts)
    stock = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    path = lines(tmp_path / "texts.txt", SENTENCES)
    for role, name in (("query", "query"), ("document", "passage")):
        output = tmp_path / f"{role}.npy"
        command(f"encoder={folder}", f"input={path}", f"output={output}", f"role={role}")
        np.testing.assert_allclose(np.load(output), stock.encode(SENTENCES, prompt_name=name), atol=1e-5)
    with pytest.raises(InputError) as caught:
        command(f"encoder={folder}", f"input={path}", f"output={output}", "role=query", "prompt=x")
    assert caught.value.key == "role"


def test_a_kill_before_the_file_is_made_leaves_a_record_by_which_it_is_made(tmp_path):
    identity = {"rows": 3, "width": 2, "dtype": "float32", "chunk_rows": 2, "encoder": "e"}
    file = VectorFile(tmp_path / "o.npy", identity)
    assert not file.claim(overwrite=False)
    file.part.rename(f"{file.part}.new")
    with file.part.with_name("o.npy.part.new").open("r+b") as cut:
        cut.truncate(10)
    assert not VectorFile(tmp_path / "o.npy", identity).claim(overwrite=False)
    assert np.load(file.part, mmap_mode="r").shape == (3, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"o.npy.part", "o.npy.progress"}
