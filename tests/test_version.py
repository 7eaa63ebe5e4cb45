"""The version of the project, and ``contrastive-encoders --version``."""

import re
import subprocess
import sys
from pathlib import Path

import pytorch_lightning
import torch
import transformers

from contrastive_encoders import __version__

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "transformers", "pytorch_lightning", "hydra", "omegaconf", "numpy"}
PRINT = f"""
import sys
from contrastive_encoders.cli.main import main
main(["--version"])
assert not {HEAVY!r} & set(sys.modules)
"""


def printed_versions(*options):
    """Return the output of ``--version`` in a new process of the checkout, as pairs of name and version."""
    done = subprocess.run(
        [sys.executable, *options, "-c", PRINT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [line.split(" ", 1) for line in done.stdout.splitlines()]


def test_the_versions_are_those_of_the_modules_and_nothing_heavy_is_imported():
    printed = [[name, version.partition("+")[0]] for name, version in printed_versions()]  # torch names its build
    assert printed == [
        ["contrastive-encoders", __version__],
        ["torch", torch.__version__.partition("+")[0]],
        ["transformers", transformers.__version__],
        ["pytorch-lightning", pytorch_lightning.__version__],
    ]


def test_a_checkout_without_installed_packages_knows_its_version():
    assert printed_versions("-S")[:2] == [
        ["contrastive-encoders", __version__],
        ["torch", "not installed"],
    ]


def test_the_version_is_written_once_and_the_changelog_begins_with_it():
    for name in ("README.md", "CITATION.cff"):
        assert __version__ not in (ROOT / name).read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE)[1] == __version__
