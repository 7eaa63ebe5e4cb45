"""W&B: offline records contain what was logged; without a login no process waits at a prompt."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy

from contrastive_encoders.core import InputError
from contrastive_encoders.training.wandb_session import check_wandb, run_id, wandb_logger
from tests.wandb_records import read_records, values_of


@pytest.mark.rotates
def test_an_offline_record_holds_the_curves_and_the_config(tmp_path, in_child):
    def logged_run():
        import wandb

        for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            os.environ[name] = str(tmp_path / name)
        os.environ |= {"WANDB_SILENT": "true", "WANDB_MODE": "offline"}
        logger = wandb_logger(tmp_path / "run", project="p", name=None, group="seeds", offline=True)
        logger.log_hyperparams({"model": {"temperature": 0.05}})
        toy.train(tmp_path / "run", max_steps=8, loggers=(logger,))
        wandb.finish()
        wandb.teardown()  # the W&B service has written the last records

    assert in_child(logged_run) == 0
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    found = list(read_records(path))
    history = [values_of(record.history.item) for record in found if record.WhichOneof("record_type") == "history"]
    losses = {row["trainer/global_step"]: row["train/loss"] for row in history if "train/loss" in row}
    assert sorted(losses) == [2, 4, 6, 8]
    csv = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    column = csv[0].split(",").index("train/loss")
    assert [losses[step] for step in sorted(losses)] == [float(row.split(",")[column]) for row in csv[1:]]
    assert [row[toy.SCORE] for row in history if toy.SCORE in row] == [40.0]
    (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"][:1]
    assert (run.run_id, run.run_group) == (run_id(tmp_path / "run"), "seeds")
    config = {}
    for record in found:
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            config |= values_of((record.run.config if kind == "run" else record.config).update)
    assert json.dumps(config).count("temperature") == 1
    summaries = [values_of(record.summary.update) for record in found if record.WhichOneof("record_type") == "summary"]
    assert {key: value for one in summaries for key, value in one.items()}["train/loss"] == losses[8]


@pytest.fixture
def nobody(tmp_path):
    """An environment without any login."""
    return {"HOME": str(tmp_path), "WANDB_DIR": str(tmp_path)}


@pytest.mark.advice("contrastive_encoders.training.wandb_session:check_wandb")
def test_a_missing_login_is_refused_with_the_offline_setting(nobody):
    with pytest.raises(InputError) as refused:
        check_wandb(False, environment=nobody)
    assert (refused.value.key, refused.value.value) == ("logger", "wandb")
    assert "WANDB_MODE=offline" in refused.value.hint
    check_wandb(False, environment=nobody | {"WANDB_MODE": "offline"})


@pytest.mark.parametrize(
    "more", [{"WANDB_MODE": "offline"}, {"WANDB_MODE": "disabled"}, {"WANDB_API_KEY": "k" * 40}], ids=str
)
def test_offline_and_a_key_are_fine(more, nobody):
    check_wandb(False, environment=nobody | more)


def test_offline_as_an_argument_is_fine(nobody):
    check_wandb(offline=True, environment=nobody)


def test_a_login_in_netrc_counts_for_its_own_host(nobody, tmp_path):
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password " + "k" * 40 + "\n")
    (tmp_path / ".netrc").chmod(0o600)
    check_wandb(False, environment=nobody)
    with pytest.raises(InputError) as refused:
        check_wandb(False, environment=nobody | {"WANDB_BASE_URL": "https://wandb.example.org"})
    assert "https://wandb.example.org" in refused.value.expected


def test_wandb_offline_in_the_settings_file_counts(nobody, tmp_path):
    (tmp_path / ".config" / "wandb").mkdir(parents=True)
    (tmp_path / ".config" / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    check_wandb(False, environment=nobody)


def test_folders_of_one_name_are_different_runs(tmp_path):
    (tmp_path / "a" / "stage-nli").mkdir(parents=True)
    (tmp_path / "b" / "stage-nli").mkdir(parents=True)
    ids = {run_id(tmp_path / place / "stage-nli") for place in "ab"}
    assert len(ids) == 2
    assert all(one.startswith("stage-nli-") for one in ids)


def test_the_check_does_not_import_wandb():
    root = Path(__file__).parents[2]
    code = "import sys, contrastive_encoders.training.wandb_session; sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
