"""A key of any command that names an output or a local input is refused if it has an address.

The refusal is one sentence with exit code 2, and no folder called ``s3:`` is made.
"""

from pathlib import Path

import pytest

# They register the config classes
import contrastive_encoders.cli.compare
import contrastive_encoders.cli.embed
import contrastive_encoders.cli.evaluate
import contrastive_encoders.cli.export
import contrastive_encoders.cli.generate
import contrastive_encoders.cli.mine_negatives
import contrastive_encoders.training.compose  # noqa: F401
from contrastive_encoders.training.composition.config_keys import known_keys
from contrastive_encoders.training.composition.override_checks import LOCAL_INPUT_KEYS
from tests.forks import TRAIN, run_command

ADDRESS = "s3://bucket/run"
SWEEP = str(Path(__file__).resolve().parents[2] / "configs" / "sweeps" / "dino_lambda.yaml")
GIVEN = ["model=simcse", "data=sentences", "data.path=texts.txt", "backbone=tiny"]
COMMANDS = [
    ([TRAIN, *GIVEN], "output_dir", ADDRESS),
    ([TRAIN, "-m", *GIVEN], "hydra.sweep.dir", ADDRESS),
    ([TRAIN, *GIVEN], "data.cache_dir", ADDRESS),
    (
        [TRAIN, *GIVEN, "+callbacks.c._target_=pytorch_lightning.callbacks.ModelCheckpoint"],
        "+callbacks.c.dirpath",
        ADDRESS,
    ),
    ([TRAIN, *GIVEN[:3]], "backbone", "s3://bucket/model"),
    (["-m", "contrastive_encoders", "embed", "encoder=x", "input=texts.txt"], "output", "s3://bucket/v.npy"),
    (
        ["-m", "contrastive_encoders", "embed", "encoder=x", "input=texts.txt", "output=v.npy", "dtype=int8"],
        "quantization_ranges",
        "s3://bucket/v.npy.ranges.npy",
    ),
    (["-m", "contrastive_encoders", "export", "run=x"], "output", "hf://datasets/a/b"),
    (["-m", "contrastive_encoders", "evaluate", "encoder=x"], "output", "s3://bucket/scores.json"),
    (["-m", "contrastive_encoders", "evaluate", "action=fetch"], "data_root", "s3://bucket/eval"),
    (["-m", "contrastive_encoders", "evaluate", "data_root=eval"], "encoder", "hf://owner/name"),
    (["-m", "contrastive_encoders", "compare", "output=here"], "runs", "[s3://bucket/run]"),
    (["-m", "contrastive_encoders", "generate", "generator=x"], "output", ADDRESS),
    (["-m", "contrastive_encoders", "compare", "runs=[.]"], "output", ADDRESS),
    (["-m", "contrastive_encoders", "sweep", SWEEP], "output", ADDRESS),
    (
        ["-m", "contrastive_encoders", "mine-negatives", "encoder=x", "input=texts.txt"],
        "output",
        "s3://bucket/m.jsonl",
    ),
    (["-m", "contrastive_encoders", "download-data", "wiki1m"], "output", ADDRESS),
    (["-m", "contrastive_encoders", "preview", *GIVEN], "output", "s3://bucket/p.png"),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("overrides", "key", "value"), COMMANDS, ids=lambda one: one if isinstance(one, str) else None)
def test_an_address_is_refused_and_nothing_is_made(overrides, key, value, tmp_path):
    outcome = run_command([*overrides, f"{key}={value}"], cwd=tmp_path)
    assert outcome.returncode == 2, outcome.stderr[-2000:]
    (line,) = outcome.stderr.strip().splitlines()
    assert key.lstrip("+") in line
    assert value.strip("'[]") in line
    assert list(tmp_path.iterdir()) == []


def test_every_local_input_key_exists():
    commands = {"train": GIVEN, "generate": ["recipe=dino"]}
    commands |= {command: [] for command in ("compare", "embed", "evaluate", "export", "mine-negatives")}
    known = {key.rpartition(".")[2] for command, given in commands.items() for key in known_keys(command, given)}
    assert set(LOCAL_INPUT_KEYS) <= known
