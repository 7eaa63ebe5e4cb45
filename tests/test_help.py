"""--help of every command fits a terminal of 100 columns, and lists all that can be chosen."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("comparison", "comparison.sweep", "evaluation", "export", "export.embed", "preview", "synthesis")
CHOICES = {  # command -> groups that it offers
    "train.py": ("model", "data", "experiment", "trainer", "logger"),
    "synthesis": ("recipe",),
    "comparison": ("race",),
}


def help_of(command: str) -> str:
    words = [command] if command == "train.py" else ["-m", command]
    done = subprocess.run(
        [sys.executable, *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", ["train.py", *PACKAGES])
def test_no_line_is_longer_than_100_columns(command):
    lines = help_of(command).splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 100] == []


@pytest.mark.parametrize("command", CHOICES)
def test_every_choice_is_listed(command):
    said = " ".join(help_of(command).split())
    for group in CHOICES[command]:
        names = sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))
        assert f" {group}: {', '.join(names)} " in said
