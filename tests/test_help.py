"""--help of every command fits a terminal of 100 columns, lists all that can be chosen, and waits for nothing heavy."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_encoders.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
CHOICES = {  # command -> groups that it offers
    "train": ("model", "data", "experiment", "trainer", "logger"),
    "generate": ("recipe",),
    "compare": ("race",),
}
# In one process of its own for each: what it has imported is printed at the end
CODE = """
import sys
from contrastive_encoders.cli.main import main
try:
    main([sys.argv[1], "--help"])
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = {"torch", "pytorch_lightning", "transformers", "datasets", "wandb"} & set(sys.modules)
sys.stderr.write(", ".join(sorted(heavy)))
"""


@functools.cache
def help_of(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CODE, command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, ""), "it imports what takes seconds"
    return done.stdout


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("race", "adapt", "improve")])
def test_help_is_readable_complete_and_light(command):
    lines = help_of(command).splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 100] == []
    assert f"contrastive-encoders {command} " in help_of(command)
    said = " ".join(help_of(command).split())
    for group in CHOICES.get(command, ()):
        known = sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))
        assert f" {group}: {', '.join(known)} " in said
