"""``contrastive-encoders generate``: uninterrupted, killed, interrupted, on two processes, and with wrong input."""

import json
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from contrastive_encoders.synthesis.rules.filters import NO_ROOM, UNCLOSED
from tests.forks import run_command
from tests.guide import GUIDE, commands_of
from tests.synthesis.commands import here, refusal, rows_of, start

pytestmark = pytest.mark.usefixtures("no_pictures")

TEXTS = ["A man is playing.", "The dog runs.", 'She said "no".', "Ein Häuschen.", "A dog", "x", "A man is playing."]

WORDS = "Ġa Ġcat Ġdog Ġsings Ġrun Ġthe Ġred Ġhouse Ġis Ġold".split()


def write_toy_generator(folder: Path, *, quote: float = 3.0, positions: int = 256, seed: int = 0) -> Path:
    """Write a GPT-2 with random weights whose texts mostly end in a quotation mark.

    ``quote`` is added to the logit of the quotation mark, through a constant feature of the hidden state.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate(["<|endoftext|>", *alphabet, *WORDS])}
    bpe = Tokenizer(models.BPE(vocabulary, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=positions,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.ln_f.bias[0] = 1.0
        model.transformer.ln_f.weight[0] = 0.0
        model.lm_head.weight.normal_(std=0.3)
        model.lm_head.weight[:, 0] = -4.0  # rare: any byte
        for word in WORDS:
            model.lm_head.weight[vocabulary[word], 0] = 1.0
        model.lm_head.weight[vocabulary['"'], 0] = quote
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a generator and inputs."""
    folder = tmp_path_factory.mktemp("synthesis")
    write_toy_generator(folder / "lm")
    (folder / "x1.txt").write_text("\n".join(TEXTS) + "\n\n", encoding="utf-8")
    return folder


def synthesis(*overrides, **more):
    status, out, err = start(*overrides, **more).finish(300)
    return status, out + err


def x2(place, output, *overrides):
    named = [] if any(override.startswith("input=") for override in overrides) else [f"input={place / 'x1.txt'}"]
    size = [] if any(override.startswith("shard_size=") for override in overrides) else ["shard_size=2"]
    return ["recipe=dino_x2", f"generator={place / 'lm'}", *named, f"output={output}", *size, *overrides]


def shards(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("shard-*.jsonl"))}


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def straight(place):
    """The output of one undisturbed process."""
    status, said = synthesis(*x2(place, place / "straight"))
    assert status == 0, said
    return place / "straight"


def test_the_output_is_complete(place, straight):
    found = manifest(straight)
    assert found["complete"]
    assert found["counts"]["samples"] == len(TEXTS) * 3 * 5
    entries = [json.loads(line) for data in shards(straight).values() for line in data.decode().splitlines()]
    assert len(entries) == found["counts"]["accepted"] > 30
    assert all(list(entry) == ["text_a", "text_b", "label"] for entry in entries)
    assert Counter(e["label"] for e in entries) == {n: c["accepted"] for n, c in found["counts"]["labels"].items()}
    assert {entry["text_a"] for entry in entries} == set(TEXTS)
    assert all(entry["text_b"].strip() and not {'"', "\n"} & set(entry["text_b"]) for entry in entries)
    assert {"report.html", "README.md"} <= {path.name for path in straight.iterdir()}


def test_a_sample_of_the_input_is_another_data_set(place, tmp_path):
    here(*x2(place, tmp_path / "some", "input_sample=3"))
    texts = list(dict.fromkeys(entry["text_a"] for entry in rows_of(tmp_path / "some")))
    assert manifest(tmp_path / "some")["counts"]["inputs"] == 3
    assert 0 < len(texts) <= 3
    assert texts == [text for text in dict.fromkeys(TEXTS) if text in texts]
    other = refusal(*x2(place, tmp_path / "some", "input_sample=4"))
    assert re.search(r"input\.sample .* 4 .* 3", other.expected)


def test_a_finished_command_changes_no_file(place, straight, caplog):
    before = {path: path.stat().st_mtime_ns for path in straight.iterdir()}
    caplog.set_level("INFO")
    here(*x2(place, straight))
    assert "overwrite=true" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in straight.iterdir()} == before


def test_a_killed_command_resumes_to_the_same_output(place, tmp_path):
    """SIGKILL happens twice, after some shards; existing shards are not written again."""
    many = place / "many.txt"
    many.write_text("".join(f"sentence {n}\n" for n in range(80)))
    overrides = [f"input={many}", "shard_size=4"]
    out, kept = tmp_path / "killed", {}
    for wanted in (2, 7):
        process = start(*x2(place, out, *overrides))
        process.wait_for(lambda wanted=wanted: len(shards(out)) >= wanted)
        process.kill(signal.SIGKILL)
        assert process.finish().status == -signal.SIGKILL, "it should be running"
        there = {path: path.stat().st_mtime_ns for path in out.glob("shard-*")}
        assert kept.items() <= there.items(), "a shard was written again"
        kept = there
        assert not manifest(out)["complete"]
    assert synthesis(*x2(place, out, *overrides))[0] == 0
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in out.glob("shard-*")}.items()
    here(*x2(place, tmp_path / "never", *overrides))
    assert shards(out) == shards(tmp_path / "never")
    assert manifest(out) == manifest(tmp_path / "never")


def test_an_interrupted_command_keeps_complete_shards(place, tmp_path):
    many = place / "more.txt"
    many.write_text("".join(f"sentence {n}\n" for n in range(400)))
    process = start(*x2(place, tmp_path / "out", f"input={many}", "shard_size=4"))
    process.wait_for(lambda: len(shards(tmp_path / "out")) >= 2)
    process.kill(signal.SIGINT)
    status, _, said = process.finish()
    assert status == 130, said
    assert "Traceback" not in said
    found = manifest(tmp_path / "out")
    assert not found["complete"]
    assert [one["file"] for one in found["shards"]] == list(shards(tmp_path / "out"))
    assert found["counts"]["accepted"] == sum(data.count(b"\n") for data in shards(tmp_path / "out").values())
    assert "finished" in (tmp_path / "out" / "README.md").read_text()


def workers_of(command):
    """Return process ids of the workers of a command."""
    children = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children").read_text().split()
    return [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.slow  # two workers
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_workers_of_which_one_is_killed_write_the_output_of_one_process(place, tmp_path, precision):
    many = place / "for-two.txt"
    many.write_text("".join(f"sentence {n}\n" for n in range(120)))
    overrides = [f"input={many}", "shard_size=4", f"precision={precision}"]
    process = start(*x2(place, tmp_path / "two", *overrides, "devices=2"))
    process.wait_for(lambda: len(shards(tmp_path / "two")) >= 2)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    status, _, said = process.finish()
    assert status == 0, said
    assert "signal 9" in said
    here(*x2(place, tmp_path / "one", *overrides))
    assert shards(tmp_path / "two") == shards(tmp_path / "one")
    assert manifest(tmp_path / "two") == manifest(tmp_path / "one")


@pytest.mark.slow  # two workers
def test_workers_exit_with_a_killed_command(place, tmp_path):
    many = place / "for-nobody.txt"
    many.write_text("".join(f"sentence {n}\n" for n in range(2000)))
    process = start(*x2(place, tmp_path / "out", f"input={many}", "shard_size=4", "devices=2"))
    process.wait_for(lambda: len(shards(tmp_path / "out")) >= 2)
    workers = workers_of(process)
    process.kill(signal.SIGKILL)
    process.finish()
    end = time.monotonic() + 30
    while any(Path(f"/proc/{one}").exists() for one in workers):
        assert time.monotonic() < end, "the workers have not exited"
        time.sleep(0.1)


@pytest.mark.parametrize("launcher", [{"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "RANK": "0"}])
def test_a_launcher_is_refused(place, tmp_path, launcher):
    status, _, said = start(*x2(place, tmp_path / "out"), **launcher, LOCAL_WORLD_SIZE="2").finish()
    assert status == 2
    assert "devices" in said
    assert not (tmp_path / "out").exists()


def test_both_sentences_are_written_without_input(place, tmp_path):
    out = tmp_path / "both"
    overrides = ["recipe=dino_x1x2", f"generator={place / 'lm'}", f"output={out}", "num_x1=12", "strategy=retry"]
    here(*overrides)
    first = [json.loads(line) for data in shards(out / "x1").values() for line in data.decode().splitlines()]
    pairs = [json.loads(line) for data in shards(out).values() for line in data.decode().splitlines()]
    assert 6 < len(first) <= 12
    assert {pair["text_a"] for pair in pairs} <= {one["text_a"] for one in first}
    times = Counter(one["text_a"] for one in first)
    for (text, _), count in Counter((pair["text_a"], pair["label"]) for pair in pairs).items():
        assert count <= 2 * times[text]
    assert manifest(out / "x1")["identity"]["decoding"]["top_k"] == 0
    assert manifest(out)["identity"]["decoding"]["top_k"] == 5
    assert manifest(out)["complete"]
    assert re.search("num_x1 .* 15 .* 12", refusal(*overrides, "num_x1=15").expected)


def test_a_model_that_never_closes_a_text_gives_an_empty_data_set(tmp_path, caplog):
    write_toy_generator(tmp_path / "lm", quote=-50.0)
    (tmp_path / "x1.txt").write_text("A.\n" + "long " * 300 + "\n")  # and one that is longer than the context
    here(*x2(tmp_path, tmp_path / "out", "max_new_tokens=12"))
    assert "WARNING" in {record.levelname for record in caplog.records}
    found = manifest(tmp_path / "out")
    assert found["complete"]
    assert found["counts"]["rejected"] == {UNCLOSED: 15, NO_ROOM: 15}
    assert found["shards"] == []


WRONG = [
    ([], ["recipe=null", "dino_x1"]),
    (["recipe=dino_x1"], ["input=", "null"]),
    (["recipe=dino_x1", "input=null", "num_x1=2"], ["num_x1=2: ", " 3 "]),
    (["recipe=dino_x1", "input=null", "per_label=3"], ["per_label=3", "null"]),
    (["recipe=dino_x2", "encoder=./none"], ["encoder=./none"]),
    (["recipe=dino_x1", "input=null", "encoder=FOLDER"], ["encoder=", "pairs"]),
    (["spec=BAD"], ["labels.a.instruction", "got 'x'"]),
    (["recipe=dino_x2", "top_p=high"], ["top_p=", "high"]),
    (["recipe=dino_x2", "decay=nan"], ["decay=nan"]),
    (["recipe=dino_x2", "generator=FOLDER"], ["generator="]),
    (["recipe=dino_x2", "strategy=retry", "per_label=9"], ["max_tries=5", "per_label (9)"]),
    (["recipe=dino_x2", "input_sample=0"], ["input_sample=0: ", " 1 "]),
    (["recipe=dino_x1", "input=null", "input_sample=3"], ["input_sample=3", "null"]),
    (["recipe=dino_x2", "device=cuda:9"], ["device=cuda:9"]),
]


@pytest.mark.parametrize(("overrides", "facts"), WRONG)
def test_wrong_input_is_refused_and_leaves_no_folder(place, tmp_path, overrides, facts):
    (tmp_path / "EMPTY").write_text("")
    (tmp_path / "BAD").write_text("task_name: t\nlabels: {a: {instruction: 'x'}}\n")
    (tmp_path / "FOLDER").mkdir()
    for name in ("EMPTY", "BAD", "FOLDER"):
        overrides = [override.replace(f"={name}", f"={tmp_path / name}") for override in overrides]
    given = [f"generator={place / 'lm'}", f"input={place / 'x1.txt'}", f"output={tmp_path / 'out'}"]
    error = refusal(*given, *overrides)
    assert not [fact for fact in facts if fact not in str(error)], error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("override", ["~recipe", "recipe=[dino_x1,dino_x2]"])
def test_no_recipe_has_exit_code_2(place, tmp_path, override):
    status, output = synthesis(*x2(place, tmp_path / "out")[1:], override)
    assert (status, "recipe=" in output) == (2, True)


def test_a_wrong_key_has_exit_code_2_and_a_suggestion(place, tmp_path):
    status, output = synthesis(*x2(place, tmp_path / "out"), "decai=3")
    assert status == 2
    assert re.search(r"decai.*\bdecay\b", output)


def test_the_commands_of_the_documentation_run(place, tmp_path, minilm_path):
    """The commands run as written, except for the models and the sentences."""
    lines = [
        line.split()
        for line in commands_of(*GUIDE)
        if line.startswith("contrastive-encoders generate ") and "dino" in line
    ]
    lines = [line for line in lines if "cluster=auto" not in line]  # test_ray_workers
    assert len(lines) >= 3
    put = {"generator": place / "lm", "input": place / "x1.txt", "annotation_sample": 10, "encoder": minilm_path}
    for line in lines:
        overrides = [override.partition("=") for override in line[2:]]
        filled = [f"{key}={put.get(key, value)}" for key, _, value in overrides]
        done = run_command(["-m", "contrastive_encoders", "generate", *filled], tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "dino-x2" / "annotation.csv").is_file()
