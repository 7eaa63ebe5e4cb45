"""An attack for each promise of docs/security.md."""

import json
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import open_dict

import contrastive_encoders.cli.preview as preview
from contrastive_encoders.core import InputError
from contrastive_encoders.encoders.loading.load import load_encoder
from contrastive_encoders.io.checkpoint import load_checkpoint
from contrastive_encoders.io.item_scores import read_items
from contrastive_encoders.io.manifest import CorruptFileError
from contrastive_encoders.reports.page import ReportSection, page
from contrastive_encoders.training.compose import compose, run_of
from contrastive_encoders.training.composition.config_files import CONFIGS
from contrastive_encoders.training.composition.config_store import compose_config
from contrastive_encoders.training.composition.override_checks import check_override_syntax
from contrastive_encoders.training.resolve import resolve
from contrastive_encoders.training.target_checks import check_targets
from tests.forks import TRAIN, run_command
from tests.test_architecture import SOURCES

ROOT = Path(__file__).resolve().parents[2]


class Attack:
    """Object that makes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


@pytest.fixture
def mark(tmp_path):
    """A file that only an attack makes."""
    yield tmp_path / "attacked"
    assert not (tmp_path / "attacked").exists()


def test_the_attack_works_where_nothing_keeps_it_out(tmp_path):
    pickle.loads(pickle.dumps(Attack(tmp_path / "attacked"))).close()
    assert (tmp_path / "attacked").exists()


@pytest.mark.parametrize("form", ["zip", "pickle"])
def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, mark, form):
    path = tmp_path / "best.ckpt"
    if form == "zip":
        torch.save({"state_dict": {}, "x": Attack(mark)}, path)
    else:
        path.write_bytes(pickle.dumps({"state_dict": Attack(mark)}))
    with pytest.raises(CorruptFileError) as raised:
        load_checkpoint(path)
    assert "weights_only" not in str(raised.value), "advice to run it after all"
    with pytest.raises(InputError) as raised:
        load_encoder(path)
    assert str(path) in str(raised.value)


def test_a_backbone_that_would_run_code_is_refused_without_advice_to_load_it(tmp_path, mark, tiny_bert):
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({"x": Attack(mark)}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickle") as raised:
        load_encoder(folder)
    assert "trust" not in str(raised.value)


def test_arrays_that_would_run_code_are_refused(tmp_path, mark):
    np.savez(tmp_path / "item_scores.npz", **{"correct/x": np.array([Attack(mark)], dtype=object)})
    with pytest.raises(InputError) as raised:
        read_items(tmp_path / "item_scores.npz")
    assert str(tmp_path / "item_scores.npz") in str(raised.value)


def test_a_model_folder_with_code_is_refused(tmp_path, mark):
    folder = tmp_path / "model"
    folder.mkdir()
    code = {"AutoConfig": "own.Config", "AutoModel": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": code}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": code, "tokenizer_class": "Own"}))
    (folder / "own.py").write_text(f"open({str(mark)!r}, 'w')\n")
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "own.Module"}]))
    with pytest.raises(InputError):
        load_encoder(folder)


def test_a_text_is_shown_in_a_page_and_not_run():
    text = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    made = page(text, [ReportSection(text, [text])], [text])
    assert "<script>alert" not in made
    assert "<img src=x" not in made
    assert made.count("&lt;script&gt;alert(1)") >= 4


ATTACKS = [
    {"model": {"_target_": "os.system", "command": "touch {mark}"}},
    {"model": {"_target_": "pytorch_lightning.trainer.trainer.os.system", "command": "touch {mark}"}},
    {"model": {"_target_": "pytorch_lightning.Trainer"}},
    {"model": {"_target_": "contrastive_encoders.io.atomic.remove", "path": "/"}},
    {"data": {"_target_": "contrastive_encoders.encoders.objectives.simcse.SimCSE"}},
    {"data": {"_target_": "builtins.eval", "_args_": ["1"]}},
    {"trainer": {"_target_": "subprocess.Popen", "_args_": [["touch", "{mark}"]]}},
    {"trainer": {"_target_": "pytorch_lightning.Trainer", "strategy": {"_target_": "os.system"}}},
    {"trainer": {"_target_": "pytorch_lightning.Trainer", "plugins": [{"_target_": "os.system", "_args_": ["x"]}]}},
    {"callbacks": {"x": {"_target_": "os.system"}}},
    {"callbacks": {"x": {"_target_": "pytorch_lightning.Trainer"}}},
    {
        "callbacks": {
            "x": {"_target_": "pytorch_lightning.callbacks.EarlyStopping", "monitor": {"_target_": "os.system"}}
        }
    },
    {"callbacks": {"x": {"_target_": 3}}},
    {"callbacks": {"x": {"_target_": "pytorch_lightning.nothing.Here"}}},
    {"callbacks": {"x": {"_target_": "contrastive_encoders.training.stage_loop.run_stages"}}},
    {"callbacks": {"x": 3}},
    {"callbacks": 3},
    {"logger": {"_target_": "pytorch_lightning.callbacks.EarlyStopping"}},
    {"logger": {"_target_": "contrastive_encoders.training.wandb_session.os.system"}},
    {"allow_targets": ["subprocess"], "logger": {"_target_": "subprocess2.x"}},
    {"data": {"_target_": -0.5}},
    {"data": {"_target_": []}},
    {"data": "${oc.create:{_target_: os.system, command: x}}"},
    {"trainer": {"_target_": "pytorch_lightning.Trainer", "plugins": "${oc.create:[{_target_: os.system}]}"}},
    {"callbacks": {"x": {"_target_": "${said}"}}, "said": "os.system"},
    {"callbacks": "${oc.create:{x: {_target_: os.system}}}"},
]


@pytest.mark.rotates
@pytest.mark.parametrize("attack", ATTACKS)
def test_only_classes_of_the_expected_type_are_built(attack, mark):
    attack = json.loads(json.dumps(attack).replace("{mark}", str(mark)))
    with pytest.raises(InputError) as refused:
        refused_or_not(attack)
    assert refused.value.key.startswith("callbacks") or refused.value.key.endswith("._target_")


def refused_or_not(changed):
    """Compose a run with these keys, and check the classes that it names."""
    cfg = compose_config("train", ["model=simcse", "data=sentences", "data.path=x"])
    with open_dict(cfg):
        for key, value in changed.items():
            cfg[key] = value
        check_targets(resolve(run_of(cfg)))


OWN = {  # contents of the module: the target, and the message about it
    "missing": (None, "mine.callbacks.Own", ["mine is neither installed", "PYTHONPATH"]),
    "class": ("class Owen: ...", "mine.callbacks.Own", ["Own: expected", "nearest is Owen"]),
    "raises": ("x = 1\n\nx / 0", "mine.callbacks.Own", ["ZeroDivisionError", "callbacks.py, line 3"]),
    "kind": ("class Own: ...", "mine.callbacks.Own", ["=mine.callbacks.Own: expected", "Callback"]),
    "exits": ("import sys\n\nsys.exit(3)", "mine.callbacks.Own", ["SystemExit", "callbacks.py, line 3"]),
}


@pytest.mark.parametrize("case", OWN)
def test_a_custom_module_that_cannot_be_imported_is_refused_in_one_line(case, command, tmp_path, monkeypatch):
    text, target, said = OWN[case]
    if text:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "__init__.py").touch()
        (tmp_path / "mine" / "callbacks.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    done = command(f"+callbacks.own._target_={target}", "allow_targets=[mine]", f"output_dir={tmp_path / 'run'}")
    assert done.status == 2
    assert "Traceback" not in done.err
    assert [part for part in said if part not in done.err] == []


@pytest.mark.parametrize(("group", "lacks"), [("model", "objective"), ("data", "yields")])
@pytest.mark.parametrize("target", [TRAIN, "preview"])
def test_a_custom_class_without_the_required_attributes_is_refused(target, group, lacks, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("class Own: ...")
    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    monkeypatch.syspath_prepend(tmp_path)
    overrides = ["model=simcse", "data=sentences", f"data.path={tmp_path / 'texts.txt'}", "allow_targets=[mine]"]
    done = run_command(
        [*(["contrastive-encoders"] if target == "preview" else []), target, *overrides, f"{group}._target_=mine.Own"],
        tmp_path,
    )
    assert done.returncode == 2
    assert re.search(rf"{group}\._target_=mine\.Own: .*\b{lacks}\b", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.rotates
def test_classes_of_the_project_of_lightning_and_allowed_ones_are_built(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "callbacks.py").write_text(
        "import pytorch_lightning\n\n\nclass Own(pytorch_lightning.Callback): ..."
    )
    monkeypatch.syspath_prepend(tmp_path)
    stop = {"_target_": "pytorch_lightning.callbacks.EarlyStopping", "monitor": "train/loss"}
    refused_or_not({"callbacks": {"stop": stop}})
    other = {"_target_": "mine.callbacks.Own"}
    refused_or_not({"callbacks": {"own": other}, "allow_targets": ["mine"]})
    for wrong in (3, [1], "mine"):
        with pytest.raises(InputError) as refused:
            refused_or_not({"callbacks": {"own": other}, "allow_targets": wrong})
        assert (refused.value.key, refused.value.value) == ("allow_targets", wrong)
    choices = [
        (name, path.stem) for name in ("model", "data", "trainer", "logger") for path in (CONFIGS / name).glob("*.yaml")
    ]
    assert len(choices) > 15
    for group, name in choices:
        check_targets(resolve(compose([f"{group}={name}"])))


@pytest.mark.parametrize(
    "override",
    [
        "+hydra.callbacks.x={_target_: os.system}",
        "+hydra.callbacks.x=${said}",
        "hydra.launcher._target_=os.system",
        "hydra.sweeper=${said}",
        "hydra={launcher: {_target_: os.system}}",
        "+hydra.job_logging.handlers.x={class: subprocess.Popen, args: [touch, x]}",
        "hydra.hydra_logging={version: 1}",
    ],
)
def test_overrides_with_classes_for_hydra_are_refused(override):
    with pytest.raises(InputError) as refused:
        check_override_syntax("train", [override])
    assert refused.value.location == override


def test_overrides_with_log_handlers_for_hydra_are_refused(mark):
    handlers = f"handlers: {{x: {{class: logging.FileHandler, filename: {mark}}}}}"
    overrides = [
        "-m",
        "contrastive_encoders",
        "export",
        f"+hydra.hydra_logging={{version: 1, {handlers}, root: {{handlers: [x]}}}}",
    ]
    done = subprocess.run(
        [sys.executable, *overrides], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


@pytest.mark.parametrize(
    "override", ["data._target_=os.system", "data.num_workers=100000", "data.path=3", "trainer.max_epochs=[]"]
)
def test_a_preview_builds_what_a_run_would(tmp_path, capsys, override):
    (tmp_path / "texts.txt").write_text("A ferry.\n" * 40)
    given = ["data=sentences", f"data.path={tmp_path / 'texts.txt'}", f"data.cache_dir={tmp_path}", "quiet=true"]
    with pytest.raises(InputError) as refused:
        preview.run([*given, override])
    assert refused.value.key == override.partition("=")[0]


def test_a_recipe_of_another_package_is_refused(tmp_path, mark):
    overrides = [f"output={tmp_path / 'out'}", "recipe._target_=os.system", f"+recipe.command=touch {mark}"]
    for given in (overrides, [overrides[0], "recipe._target_=synthesis.recipes.dino.os.system"]):
        done = run_command(["-m", "contrastive_encoders", "generate", *given])
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_a_run_leaves_no_secret_and_its_files_have_the_permissions_of_the_umask(tiny_run, command, tmp_path):
    secrets = {name: f"secret-{name}" for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "NETRC")}
    before = os.umask(0o027)
    try:
        outcome = command(*tiny_run, f"output_dir={tmp_path / 'run'}", "quiet=true", **secrets)
    finally:
        os.umask(before)
    assert outcome.status == 0, outcome.err
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [path for path in written if b"secret-" in path.read_bytes()] == []
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in written} == {"0o640"}


def test_credentials_of_a_url_are_neither_printed_nor_written(server, command, corpus_file, tmp_path):
    """The credential is a password or a signature in an address: only the server receives it."""
    shutil.copy(corpus_file, server.folder / "corpus.txt")
    address = f"{server.url.replace('http://', 'http://me:secret-1@')}/corpus.txt?sig=secret-2"
    overrides = [
        "model=simcse",
        "data=sentences",
        f"data.path='{address}'",
        "backbone=tiny",
        "batch_size=8",
        "max_steps=1",
    ]
    cache = tmp_path / "cache"
    outcome = command(*overrides, f"output_dir={tmp_path / 'run'}", CONTRASTIVE_ENCODERS_CACHE=str(cache))
    assert outcome.status == 0, outcome.err
    assert server.asked[0] == "/corpus.txt?sig=secret-2"
    written = [path for folder in ("run", "cache") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [path for path in written if b"secret-" in path.read_bytes()] == []
    lost = command(*overrides, f"data.path='{address.replace('corpus', 'none')}'", f"output_dir={tmp_path / 'none'}")
    assert (lost.status, lost.err.count("none.txt: ")) == (2, 1), lost.err
    assert "secret-" not in outcome.out + outcome.err + lost.out + lost.err


def test_no_package_listens():
    """Ranks communicate through torch's store and process groups only."""
    servers = r"http\.server|socketserver|\.listen\(|asyncio\.start_server|0\.0\.0\.0|run_server"
    listens = re.compile(servers + r"|\.bind\((?!\(.127\.0\.0\.1., 0\))")  # that one finds a free port
    assert [path for path, text in SOURCES.items() if listens.search(text)] == []
    stores = [path for path, text in SOURCES.items() if "TCPStore(" in text]
    assert stores == ["core/runtime/process_group.py"]
    starts = [path for path, text in SOURCES.items() if "torch.distributed.run" in text]
    assert all("--standalone" in SOURCES[path] for path in starts), "which meets on this machine"
