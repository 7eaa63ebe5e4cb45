"""--help of every command fits a terminal of 100 columns, lists all choices, and imports nothing heavy."""

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
# In a separate process for each: its imports are printed at the end
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


@pytest.mark.rotates
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


NEW_CONFIG = """
from dataclasses import dataclass

from contrastive_encoders.core.config_schema import config_field
from contrastive_encoders.encoders.model_configs import SentencePairConfig


@dataclass(frozen=True, kw_only=True)
class NearConfig(SentencePairConfig):
    target: str = "contrastive_encoders.encoders.objectives.near.Near"

    margin: float = config_field(0.25, "how far apart they may be", ge=0)


MODELS = {"near": NearConfig}
"""
NEW_OBJECTIVE = """
from contrastive_encoders.core import ScoredPairBatch
from contrastive_encoders.encoders.objective import Objective
from contrastive_encoders.encoders.objectives.near_config import NearConfig


class Near(Objective):
    objective, consumes = "near", ScoredPairBatch
    settings: NearConfig

    def views(self, batch):
        return [batch.left, batch.right]

    def loss(self, vectors, batch):
        return (vectors[0] - vectors[1]).norm(dim=1).sub(self.settings.margin).relu().mean()
"""
NEW_YAML = """# @package _global_
defaults:
  - /settings/model/near@model
  - _self_
backbone: bert
batch_size: 4
"""


@pytest.mark.slow
def test_an_objective_is_its_own_files(tmp_path):
    """The files are next to those of the other objectives: composition needs no torch, and the class is found."""
    (tmp_path / "near_config.py").write_text(NEW_CONFIG)
    (tmp_path / "near.py").write_text(NEW_OBJECTIVE)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "near.yaml").write_text(NEW_YAML)
    code = f"""
import sys
import contrastive_encoders.encoders.objectives as objectives
objectives.__path__.append({str(tmp_path)!r})
objectives.MODEL_CONFIGS.update(objectives.find_configs())
from contrastive_encoders.cli.main import main
try:
    main(["train", "--config-dir=conf", "model=near", "--cfg", "job"])
except SystemExit as stop:
    assert not stop.code, stop.code
assert "torch" not in sys.modules
from hydra.utils import get_class
from contrastive_encoders.core.config_schema import settings_class
found = objectives.MODEL_CONFIGS["near"]
assert settings_class(get_class(found.target)) is found
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "margin: 0.25" in done.stdout
