"""The wheel, outside the checkout and beside modules of the user's that are called like ours."""

import json
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from contrastive_encoders.io.results import read_results

ROOT = Path(__file__).resolve().parents[2]
USER_MODULES = "cli encoders evaluation export losses preview synthesis train training".split()
USER_FOLDERS = ("datamodules", "workers")


def run(*words, cwd=ROOT, timeout=400):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of what is packaged, without isolation."""
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
    """``console(words, ...)`` in a folder with the user's modules, in an environment of the wheel and what it needs.

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
    return lambda *words: run(place / "bin" / "contrastive-encoders", *words, cwd=cwd)


def test_the_wheel_has_one_top_level_name(wheel):
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"contrastive_encoders"}
    assert len(names) == 2


def test_the_console_lists_its_commands_and_the_help_names_it(console):
    commands = console("--help").stdout
    assert all(f"\n  {name} " in commands for name in "train evaluate generate export embed compare race".split())
    assert "model: angle, cosent, declutr" in console("train", "--help").stdout


@pytest.mark.slow  # an installed wheel on two processes
def test_two_processes_train(console, tiny_run, tmp_path):
    console("train", *tiny_run, "trainer=ddp", "trainer.accelerator=cpu", "devices=2", f"output_dir={tmp_path}/run")
    assert read_results(tmp_path / "run" / "results.json")["processes"] == 2


@pytest.mark.slow
def test_a_domain_is_synthesised(console, domain_words, tmp_path):
    words = [word for word in domain_words if not word.startswith("domain.folder")]
    words += ["only_stage=domain"]
    console("train", *words, f"domain.folder={tmp_path}/made", f"output_dir={tmp_path}/run")
    manifest = json.loads((tmp_path / "made" / "triplets" / "manifest.json").read_text())
    assert manifest["counts"]["accepted"] > 16
    assert (tmp_path / "run" / "stage-domain" / "results.json").is_file()


@pytest.mark.slow
def test_an_empty_environment_needs_nothing_else(wheel, tmp_path):
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--constraint", ROOT / "constraints.txt", wheel, timeout=1800)
    done = run(tmp_path / "environment" / "bin" / "contrastive-encoders", "train", "--help", cwd=tmp_path)
    assert "model: angle, cosent, declutr" in done.stdout
