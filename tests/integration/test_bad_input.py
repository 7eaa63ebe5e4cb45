"""User errors: exit code 2 and one line on stderr that says what to do, without a traceback."""

import gzip
import json
import re
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch


def text_file(folder, content, name="data.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def one_line(outcome, status=2):
    """Return the message, which must be a single line."""
    # a dozen pairs are not the published test set, which is also reported
    lines = [line for line in outcome.err.strip().splitlines() if not line.startswith("tables in ")]
    assert outcome.status == status, outcome.err[-2000:]
    assert len(lines) == 1, outcome.err[-2000:]
    assert lines[0].startswith("contrastive-encoders train: ")
    assert "Error(" not in lines[0]
    return lines[0]


def lacking(message, expected):
    """Return the strings that are missing."""
    return [part for part in expected if part not in message]


@pytest.fixture
def refused(tiny_run, command, tmp_path):
    """Return the message of a run with these arguments, which ends with ``status``."""

    def run(overrides, status=2, **env):
        given = {override.partition("=")[0] for override in overrides}
        base = [*tiny_run, f"output_dir={tmp_path / 'run'}", "quiet=true"]
        outcome = command(
            *(override for override in base if override.partition("=")[0] not in given), *overrides, **env
        )
        return one_line(outcome, status)

    return run


# --------------------------------------------------------------------------------- before anything runs

ALONE = [
    (["data=text"], ["model=null: ", "model=declutr"]),
    (["model=declutr"], ["data=null: ", "pydocs"]),
    (["model=declutrr", "data=text"], ["model=declutrr: ", " declutr."]),
    (["model={}", "data=text"], ["model={}: ", "declutr"]),
    (["model=simcse", "data=text", "model=declutr"], ["model=declutr: ", "model=simcse"]),
    (["model=declutr", "data=text", "+experiment=a", "experiment=b"], ["experiment=b: ", "experiment=a"]),
    (["stages.one.model=simcse", "stages.one.model=declutr"], ["stages.one.model=declutr: ", "stages.one.model=sim"]),
    (["model=simcse", "model=simcse", "data=text", "model.temprature=1"], ["model.temperature"]),
    (["model=declutr", "data=text", "data.max_spam=3"], ["data.max_spam", "data.max_span"]),
    (["model=declutr", "data=text", "model.temprature=1"], ["model.temperature"]),
    (
        ["model=declutr", "data=pydocs", "backbone=${installed:no_such_weights/model}"],
        ["${installed:no_such_weights/model}: ", "package no_such_weights"],
    ),
    (
        ["model=declutr", "data=pydocs", "backbone=${installed:transformers/training_arg.py}"],
        ["${installed:transformers/training_arg.py}: ", ".py"],
    ),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("overrides", "expected"), ALONE, ids=lambda overrides: " ".join(overrides))
def test_a_config_that_cannot_be_composed_is_refused(overrides, expected, command, tmp_path):
    outcome = command(*overrides, f"output_dir={tmp_path / 'run'}")
    assert not lacking(one_line(outcome), expected)
    assert not (tmp_path / "run").exists()


VALUES = [
    ("model.temperature=hot", ["model.temperature=hot: ", "number"]),
    ("batch_size=six", ["batch_size=six: ", "integer"]),
    ("batch_size=0", ["batch_size=0"]),
    ("batch_size=41", ["batch_size=41", "40", "batch_size=40"]),
    ("max_steps=0", ["max_steps=0"]),
    ("accumulate=4", ["accumulate=4: ", "batch_size", "token_budget"]),
    ("+trainer.max_steps=3", ["trainer.max_steps=3: ", "Set max_steps."]),
    ("+trainer.accumulate_grad_batches=2", ["trainer.accumulate_grad_batches=2: ", "batch_size"]),
    ("precision=fp64", ["precision=fp64", "fp32, bf16, fp16"]),
    ("precision=fp16", ["precision=fp16: ", "fp32", "precision=bf16"]),
    ("devices=4", ["batch_size=6", "4 or 8"]),
    ("data.max_span=4000", ["data: ", "longest", "data.max_span="]),
    ("data.anchor_placement=grille", ["data.anchor_placement", "grid"]),
    ("data.path=nowhere.txt", ["data.path=nowhere.txt: "]),
    ("model.lr_schedule=cosine", ["cosine", "linear"]),
    ("model.lr=-1", ["model.lr=-1: ", "0"]),
    ("model.metric_loss=ArcFaceLoss", ["ArcFaceLoss", "class"]),
    ("backbone=nobody/nothing", ["backbone=nobody/nothing: "]),
    ("backbone=/no/such/folder", ["backbone=/no/such/folder: "]),
    ("monitor=stsb-dev/cosine/spearman", ["monitor=stsb-dev/cosine/spearman: ", "null", "every_n_steps"]),
    ("monitor=train/accuracies", ["monitor=train/accuracies: ", "train/contrastive", "train/mlm"]),
    ("evaluation.data_root=nowhere", ["evaluation.data_root=nowhere: "]),
    ("resume=nowhere.ckpt", ["resume=nowhere.ckpt: "]),
]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("override", "expected"), VALUES, ids=lambda override: override if isinstance(override, str) else ""
)
def test_an_invalid_value_is_refused_with_its_key(override, expected, refused):
    assert not lacking(refused([override]), expected)


def test_an_invalid_model_is_refused_before_texts_are_read(refused, tmp_path):
    said = refused(["freeze=layers:9", f"data.cache_dir={tmp_path / 'cache'}"])
    assert not lacking(said, ["freeze=layers:9", "from 1 to 1"])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["evaluation.suite=stsbb"], ["evaluation.suite=stsbb: ", " stsb."]),
        (
            ["evaluation.suite=stsb", "evaluation.every_n_steps=1", "evaluation.during_training=stsbdev"],
            ["evaluation.during_training=stsbdev: ", " stsb"],
        ),
        (
            ["evaluation.suite=stsb-dev", "evaluation.every_n_steps=1", "monitor=stsb-dev/cosine/speerman"],
            ["monitor=stsb-dev/cosine/speerman: ", " stsb-dev/cosine/spearman", "pearson"],
        ),
    ],
    ids=str,
)
def test_unknown_scores_are_refused(overrides, expected, refused, small_eval):
    assert not lacking(refused([f"evaluation.data_root={small_eval}", *overrides]), expected)


# --------------------------------------------------------------------------------------------- the data

GOOD = "the ferry leaves the harbour before the market opens " * 60
FILES = {
    "empty.txt": ("", ["empty"]),
    "short.txt": ("a short line\nand another one\n", ["short.txt"]),
    "broken.txt": (f"{GOOD}ä".encode() + b"\n\xff broken\n", ["broken.txt:2", "UTF-8"]),
    "cut.txt.gz": (gzip.compress(GOOD.encode() * 50)[:-40], ["cut.txt.gz", "truncated"]),
    "table.xlsx": ("a,b", ["table.xlsx:1: ", "valid .xlsx"]),
    "odd.txt": (b"\xff\xfeh\0i", ["odd.txt:1: ", "UTF-16", "byte 5 ", "UTF-8"]),
    "half.csv": ("text;n\na;1\nb;2\nc;3;4\n", ["half.csv:4: ", "2 columns", "got 3", "separator"]),
    "slides.pptx": ("PK", ["slides.pptx: ", ".txt"]),
}


@pytest.mark.rotates
@pytest.mark.parametrize("name", FILES)
def test_an_unreadable_file_is_refused_with_its_name(name, refused, tmp_path):
    content, expected = FILES[name]
    said = refused([f"data.path={text_file(tmp_path, content, name)}"])
    assert not lacking(said, expected)
    assert "ename" not in said, "the name of a file is the user's"


def test_a_document_format_of_an_optional_dependency_is_refused_with_its_installation(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "markitdown", None)
    said = refused([f"data.path={text_file(tmp_path, GOOD, 'page.html')}"])
    assert not lacking(said, ["page.html: ", "package markitdown", "pip install 'contrastive-encoders[documents]'"])


# ---------------------------------------------------------------------------- backbones and checkpoints


def test_a_backbone_without_a_head_is_refused_if_mlm_is_requested(tiny_bert, refused, command, tiny_run, tmp_path):
    """By default the run trains without it, as with an explicit key, and reports this."""
    from safetensors.torch import load_file
    from transformers import AutoModel

    folder = shutil.copytree(tiny_bert, tmp_path / "headless")
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    for asked in ("model.mlm_weight=1", "model.contrastive_weight=0"):
        assert not lacking(refused([f"backbone={folder}", asked]), ["masked-LM", "model.mlm_weight=0"])
    settled, weights = list[str](), list[dict]()
    for name, given in (("default", []), ("trunk", ["model.mlm_weight=0"])):
        outcome = command(*tiny_run, f"backbone={folder}", *given, f"output_dir={tmp_path / name}")
        assert outcome.status == 0, outcome.err
        settled.append(json.loads((tmp_path / name / "results.json").read_text()).get("resolved_settings", {}))
        weights.append(load_file(tmp_path / name / "encoder" / "model.safetensors"))
        assert ("model.mlm_weight: 0, as backbone=" in outcome.err) == (name == "default")
    assert settled[0].keys() == {"model.mlm_weight"}
    assert settled[1] == {}
    assert all((weights[0][name] == weight).all() for name, weight in weights[1].items())


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"objective": "gense"}, "gense"),
        ({"state_dict": {"encoder.weight": torch.zeros(3)}}, "lm_head.bias"),
        ({"loops": None}, "'loops'"),
    ],
    ids=str,
)
def test_a_checkpoint_of_something_else_is_refused(change, expected, finished, refused, tmp_path):
    checkpoint = torch.load(finished / "checkpoints" / "last.ckpt", weights_only=True) | change
    torch.save({name: part for name, part in checkpoint.items() if part is not None}, tmp_path / "other.ckpt")
    assert not lacking(refused([f"resume={tmp_path / 'other.ckpt'}"]), ["other.ckpt", expected])


def test_a_file_is_refused_as_an_output_directory(tiny_run, command, corpus_file):
    assert f"output_dir={corpus_file}: " in one_line(command(*tiny_run, f"output_dir={corpus_file}"))
    assert f"output_dir={corpus_file}/below: " in one_line(command(*tiny_run, f"output_dir={corpus_file}/below"))


# ------------------------------------------------------------------------------------ while it runs


def test_a_nan_loss_keeps_the_last_good_checkpoint(refused, tmp_path):
    overrides = ["model.lr=1e30", "checkpoint.every_n_steps=1", "max_steps=5"]
    assert not lacking(refused(overrides, status=1), ["step 2 ", "NaN", "rows"])
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 1
    assert all(weight.isfinite().all() for weight in saved["state_dict"].values())


def test_an_error_of_wandb_is_not_reported_as_a_download(tiny_run, command, tmp_path):
    refuses = {"do_POST": lambda self: self.send_error(403), "log_message": lambda *_: None}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Refuses", (BaseHTTPRequestHandler,), refuses))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    there = {"WANDB_MODE": "online", "WANDB_API_KEY": "k" * 40, "WANDB_BASE_URL": url, "WANDB_ERROR_REPORTING": "false"}
    outcome = command(*tiny_run, f"output_dir={tmp_path / 'run'}", "quiet=true", "logger=wandb", **there)
    server.shutdown()
    server.server_close()
    assert (outcome.status, outcome.err.count("Traceback")) == (1, 0), outcome.err[-2000:]
    *_, last = outcome.err.splitlines()
    assert re.fullmatch(r"contrastive-encoders train: W&B .*403.*WANDB_MODE=offline.*", last)


def test_the_real_command_line_exits_with_2(tiny_run, run_train, tmp_path):
    done = run_train([*tiny_run, "data.max_spam=3", f"output_dir={tmp_path}"])
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"contrastive-encoders train: data\.max_spam=3: .* data\.max_span\.\n", done.stderr)
