"""The wheel, outside the checkout and next to a user's modules with the same names."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from contrastive_encoders import __version__
from contrastive_encoders.io.results import read_results
from tests.integration.conftest import NO_RULES

ROOT = Path(__file__).resolve().parents[2]
USER_MODULES = "cli comparison core encoders evaluation export losses preview runtime synthesis train training".split()
USER_FOLDERS = ("configs", "datamodules", "workers")
OBJECTIVE = """from contrastive_encoders.encoders.objectives.simcse import SimCSE


class Mine(SimCSE):
    objective = "mine"
"""
CONFIG = """# @package _global_
defaults: [simcse, _self_]
model: {_target_: of_the_user.Mine}
"""
API = """import sys
import contrastive_encoders as package
for name in package.__all__:
    getattr(package, name)
print(*package.load_encoder(sys.argv[1]).embed(["The ferry leaves.", "Bread rises."]).shape)
"""


def run(*arguments, cwd=ROOT, timeout=400):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    arguments = [str(argument) for argument in arguments]
    done = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of the packaged files, without isolation."""
    copy = tmp_path_factory.mktemp("copy")
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("contrastive_encoders", *setup["package-dir"].values()):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", copy / "dist", copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def console(wheel, tmp_path_factory):
    """Return a function that runs a command in an environment of the wheel and its requirements.

    ``console(command, arguments, ...)`` runs in a folder with the user's modules, in the environment.
    A line of a .pth file adds the packages of the tests without this checkout, whose own .pth is then not read.
    """
    place, cwd = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("users")
    venv.create(place, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))
    run(sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "-q", "--no-deps", wheel)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in USER_MODULES:
        (cwd / f"{name}.py").write_text("raise SystemExit('the user\\'s own module was imported')\n")
    for name in USER_FOLDERS:
        (cwd / name).mkdir()
    code = "import contrastive_encoders.training as package; print(package.__file__)"
    found = run(place / "bin" / "python", "-c", code, cwd=cwd)
    assert Path(found.stdout.strip()).is_relative_to(place)
    (cwd / "of_the_user.py").write_text(OBJECTIVE)
    (cwd / "conf" / "model").mkdir(parents=True)
    (cwd / "conf" / "model" / "mine.yaml").write_text(CONFIG)
    return lambda command, *overrides: run(place / "bin" / command, *overrides, cwd=cwd)


def test_the_wheel_has_one_top_level_name(wheel):
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert names == {"contrastive_encoders", f"contrastive_encoders-{__version__}.dist-info"}


@pytest.mark.rotates
def test_the_console_lists_its_commands_and_the_help_names_it(console):
    commands = console("contrastive-encoders", "--help").stdout
    assert all(f"\n  {name} " in commands for name in "train evaluate generate export embed compare race".split())
    assert "model: angle, cosent, declutr" in console("contrastive-encoders", "train", "--help").stdout
    assert console("contrastive-encoders", "--version").stdout.startswith(f"contrastive-encoders {__version__}\n")


@pytest.mark.slow  # four starts
def test_two_processes_of_torchrun_train_and_a_multirun_an_objective_of_the_user(console, tiny_run, rows, tmp_path):
    module = ("-m", "contrastive_encoders", "train")
    spread = ("trainer=ddp", "trainer.accelerator=cpu", f"output_dir={tmp_path}/run")
    console("python", "-m", "torch.distributed.run", "--nproc-per-node", 2, *module, *tiny_run, *spread)
    assert read_results(tmp_path / "run" / "results.json")["processes"] == 2
    own = ["model=mine", "allow_targets=[of_the_user]", "data=triplets", f"data.path={rows}", "batch_size=8"]
    tiny = [override for override in tiny_run if override.startswith(("backbone=", "tiny.", "max_steps="))]
    seeds = ["seed=1,2", f"output_dir={tmp_path}/own-${{seed}}"]
    console("contrastive-encoders", "train", "-m", "--config-dir=conf", *own, *tiny, *seeds)
    found = [read_results(tmp_path / f"own-{seed}" / "results.json") for seed in (1, 2)]
    assert [(one["objective"], one["seeds"]) for one in found] == [("mine", [1]), ("mine", [2])]


@pytest.mark.slow  # four starts
def test_what_uses_an_encoder_and_what_makes_data(console, finished, small_eval, sentences, tiny_t5, tmp_path):
    assert console("python", "-c", API, finished).stdout.split() == ["2", "32"]
    scores = ("suite=[stsb]", f"data_root={small_eval}", f"output={tmp_path}/scores.json")
    console("contrastive-encoders", "evaluate", f"encoder={finished}", *scores)
    assert "stsb/cosine/spearman" in read_results(tmp_path / "scores.json")["scores"]
    texts = Path(sentences.strip("[]").split(",")[0])
    overrides = (f"encoder={finished}", f"input={texts}", f"output={tmp_path}/vectors.npy")
    console("python", "-m", "contrastive_encoders", "embed", *overrides)
    assert np.load(tmp_path / "vectors.npy").shape == (len(texts.read_text().splitlines()), 32)
    overrides = ("recipe=gense", f"generator={tiny_t5}", f"input={texts}", *NO_RULES, f"output={tmp_path}/made")
    console("contrastive-encoders", "generate", *overrides)
    assert json.loads((tmp_path / "made" / "manifest.json").read_text())["counts"]["accepted"] > 0


@pytest.mark.slow  # an installed wheel on two processes that it starts itself
def test_two_processes_train(console, tiny_run, tmp_path):
    spread = ("trainer=ddp", "trainer.accelerator=cpu", "devices=2", f"output_dir={tmp_path}/run")
    console("contrastive-encoders", "train", *tiny_run, *spread)
    assert read_results(tmp_path / "run" / "results.json")["processes"] == 2


@pytest.mark.slow
def test_a_domain_is_synthesized(console, domain_overrides, tmp_path):
    overrides = [override for override in domain_overrides if not override.startswith("domain.folder")]
    overrides += ["only_stage=domain", f"domain.folder={tmp_path}/made", f"output_dir={tmp_path}/run"]
    console("contrastive-encoders", "train", *overrides)
    manifest = json.loads((tmp_path / "made" / "triplets" / "manifest.json").read_text())
    assert manifest["counts"]["accepted"] > 16
    assert (tmp_path / "run" / "stage-domain" / "results.json").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the files")
def test_an_sdist_makes_the_same_wheel(wheel, tmp_path):
    """The source is a copy of all files of the repository; the links are not in the archive."""
    listed = run("git", "ls-files", "-z").stdout.rstrip("\0").split("\0")
    for name in listed:
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "copy" / name, follow_symlinks=False)
    code = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    run(sys.executable, "-c", code, cwd=tmp_path / "copy")
    (sdist,) = (tmp_path / "copy" / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {"docs/start.md", "tests/conftest.py", "Makefile", "constraints.txt", "encoders/pooling.py"} <= files
    assert {"CHANGELOG.md", "CITATION.cff", "SECURITY.md", ".github/workflows/ci.yml"} <= files
    assert {"examples/improve_and_search.py", "examples/cluster/rayjob.yaml"} <= files
    assert not any(name.startswith("contrastive_encoders/encoders") for name in files)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, sdist)
    (built,) = tmp_path.glob("*.whl")
    kept = [sorted(zipfile.ZipFile(path).namelist()) for path in (built, wheel)]
    assert kept[0] == kept[1]


@pytest.mark.slow
def test_an_empty_environment_needs_nothing_else(wheel, tmp_path):
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--constraint", ROOT / "constraints.txt", wheel, timeout=1800)
    done = run(tmp_path / "environment" / "bin" / "contrastive-encoders", "train", "--help", cwd=tmp_path)
    assert "model: angle, cosent, declutr" in done.stdout
