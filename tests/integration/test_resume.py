"""A run that is killed or stopped, and resumed by the same command, ends where the uninterrupted one ends."""

import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.conftest import SENTENCES
from tests.damage import flip
from tests.integration.curves import assert_same_run, reached, without_times

ROOT = Path(__file__).resolve().parents[2]
STEPS = 16  # 40 documents in batches of 6: six steps per epoch, so the third epoch is in progress
KILLS = [random.Random(3).sample(range(1, STEPS), 2), [STEPS - 1], [1, 2]]


@pytest.fixture(scope="module")
def overrides(tiny_run):
    """Return the arguments of a run with dropout, MLM and a checkpoint at every third step."""
    return [
        *(override for override in tiny_run if not override.startswith("max_steps")),
        f"max_steps={STEPS}",
        "tiny.dropout=0.3",
        "model.lr=0.003",
        "log_every_n_steps=1",
        "checkpoint.every_n_steps=3",
    ]


def saved(folder, name="last"):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


# 16 steps end within the third epoch, so this limit changes only what Lightning does before it restores
EPOCHS = [["max_epochs=3"], [], ["max_epochs=3"]]


@pytest.mark.parametrize(
    ("steps", "limit"),
    [pytest.param(*one, marks=[pytest.mark.slow] * place) for place, one in enumerate(zip(KILLS, EPOCHS, strict=True))],
    ids=str,
)
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(
    steps, limit, overrides, reference, train_killed, tmp_path
):
    train_killed(tmp_path / "run", [*overrides, *limit], steps)
    assert assert_same_run(tmp_path / "run", reference) == STEPS == len(without_times(reference))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_stopped_run_saves_and_is_continued(number, status, overrides, reference, start, command, tmp_path):
    folder = tmp_path / "run"
    run = start(*overrides, f"output_dir={folder}", "checkpoint.every_n_steps=null", "max_epochs=null")
    run.wait_for(lambda: reached(folder, 2))
    run.kill(number)
    outcome = run.finish()
    assert outcome.status == status, outcome.err
    assert signal.Signals(number).name in outcome.err
    assert 2 <= saved(folder)["global_step"] < STEPS
    assert not (folder / "results.json").exists()
    again = command(*overrides, f"output_dir={folder}", "checkpoint.every_n_steps=null", "max_epochs=null")
    assert again.status == 0, again.err
    assert_same_run(folder, reference)


def test_a_run_killed_while_it_was_exported_is_finished_without_training(overrides, reference, train, tmp_path):
    folder = shutil.copytree(reference, tmp_path / "run")
    (folder / "results.json").unlink()
    shutil.rmtree(folder / "encoder")
    train(*overrides, folder=folder)
    assert (folder / "results.json").is_file()
    assert_same_run(folder, reference)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("damaged", "at", "said"),
    [
        ("results.json", 0.5, "results.json: "),
        ("checkpoints/last.ckpt", 0.7, " previous.ckpt"),
        ("checkpoints/best.ckpt", 0.5, "best.ckpt: "),
    ],
)
def test_a_damaged_file_is_reported_and_replaced(damaged, at, said, overrides, reference, command, tmp_path):
    folder = tmp_path / "run"
    overrides = [*overrides, f"output_dir={folder}"]
    if damaged == "checkpoints/last.ckpt":  # a finished run keeps no checkpoint otherwise
        assert command(*overrides, "checkpoint.keep_all=true").status == 0
    else:
        shutil.copytree(reference, folder)
    if damaged != "results.json":
        (folder / "results.json").unlink()
        flip(folder / damaged, at, 64)
    else:
        os.truncate(folder / damaged, (folder / damaged).stat().st_size // 2)
    outcome = command(*overrides)
    assert outcome.status == 0, outcome.err
    assert said in outcome.err
    assert_same_run(folder, reference)


@pytest.mark.advice("contrastive_encoders.training.resume:resumption")
def test_a_finished_run_leaves_another_one_nothing_to_train(overrides, reference, command, tmp_path):
    outcome = command(*overrides, f"resume={reference}/checkpoints/last.ckpt", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 2, outcome.err
    said = outcome.err.strip().splitlines()[-1]
    assert said.startswith(f"contrastive-encoders train: max_steps={STEPS}: ")
    assert "Traceback" not in outcome.err
    [advised] = re.findall(rf" (\S+={STEPS + 1})\b", said)
    assert (
        command(
            *overrides, f"resume={reference}/checkpoints/last.ckpt", f"output_dir={tmp_path / 'run'}", advised
        ).status
        == 0
    )


@pytest.mark.advice("contrastive_encoders.training.resolve:_check_unchanged")
def test_a_finished_run_whose_data_file_has_changed_is_refused_until_it_is_overwritten(tiny_bert, command, tmp_path):
    rows, text = tmp_path / "qa.csv", "".join(f'"{line[:20]}","{line[20:]}"\n' for line in SENTENCES)
    rows.write_text(f"question,answer\n{text}")
    arguments = ["model=pairs", "data=qa", f"data.path={rows}", f"backbone={tiny_bert}", "max_steps=1", "batch_size=4"]
    arguments += [f"output_dir={tmp_path / 'run'}", "evaluation.suite=[]"]
    assert command(*arguments).status == 0
    os.utime(rows)  # newer, but the same content
    assert command(*arguments).status == 0
    for changed in (text.replace("ferry", "train"), f"{text}glass,sand\n"):
        rows.write_text(f"question,answer\n{changed}")
        refused = command(*arguments)
        assert (refused.status, f"data.path={rows}: " in refused.err) == (2, True)
        assert command(*arguments, "overwrite=true").status == 0
    rows.unlink()  # nothing to compare with
    assert command(*arguments).status == 0


@pytest.mark.rotates
def test_a_finished_run_whose_folder_has_other_files_is_refused(tiny_bert, command, tmp_path, monkeypatch):
    folder, text = tmp_path / "data", "".join(f'"{line[:20]}","{line[20:]}"\n' for line in SENTENCES)
    folder.mkdir()
    for name, rows in (("a", text), ("b", text.upper())):
        (folder / f"{name}.csv").write_text(f"question,answer\n{rows}")
    arguments = [
        "model=pairs",
        "data=qa",
        f"backbone={tiny_bert}",
        "max_steps=1",
        "batch_size=4",
        "evaluation.suite=[]",
    ]
    relative = [*arguments, "data.path=data", f"output_dir={tmp_path / 'run'}"]
    absolute = [*arguments, f"data.path={folder}", f"output_dir={tmp_path / 'other'}"]  # reads the same token store
    monkeypatch.chdir(tmp_path)
    assert [command(*relative).status, command(*absolute).status] == [0, 0]
    shutil.copytree(folder, tmp_path / "elsewhere" / "data")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [command(*relative).status, command(*absolute).status] == [0, 0]  # equal content
    for here, again in (("data", relative), (str(folder), absolute)):
        (tmp_path / "elsewhere" / here / "c.csv").write_text("question,answer\nnew,row\n")
        added = command(*again)
        assert (added.status, f"data.path={here}: " in added.err, "c.csv" in added.err) == (2, True, True)
        (tmp_path / "elsewhere" / here / "c.csv").unlink()
    (folder / "b.csv").unlink()
    removed = command(*absolute)
    assert (removed.status, f"{folder / 'b.csv'} " in removed.err) == (2, True)


def test_a_clock_that_is_over_before_the_first_step_is_named(overrides, command, tmp_path):
    outcome = command(*overrides, "max_time=00:00:00:00", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 2, outcome.err
    message = outcome.err.strip().splitlines()[-1]
    assert message.startswith("contrastive-encoders train: max_time ")


def test_resume_null_loses_nothing(overrides, start, command, tmp_path):
    folder = tmp_path / "run"
    run = start(*overrides, f"output_dir={folder}")
    run.wait_for(lambda: reached(folder, 5))
    run.kill(signal.SIGKILL)
    run.finish()
    outcome = command(*overrides, f"output_dir={folder}", "resume=null")
    assert outcome.status == 2
    assert "overwrite=true" in outcome.err
    assert (folder / "checkpoints" / "last.ckpt").exists()


@pytest.mark.slow
def test_a_process_group_under_ddp_saves_and_exits_143(overrides, tmp_path):
    folder = tmp_path / "run"
    arguments = [*overrides, "trainer=ddp", "trainer.accelerator=cpu", "devices=2", f"output_dir={folder}"]
    arguments = [override for override in arguments if not override.startswith("max_steps")] + ["max_steps=100000"]
    group = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 120
        while not reached(folder, 3):
            assert group.poll() is None, group.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(group.pid, signal.SIGTERM)
        assert group.wait(60) == 143
    finally:
        if group.poll() is None:
            os.killpg(group.pid, signal.SIGKILL)
    assert saved(folder)["global_step"] >= 3


@pytest.mark.slow  # three starts, two of them with several processes
@pytest.mark.parametrize(("first", "then", "said"), [(1, 2, r"\b1 process .* 2\b"), (2, 1, r"\b2 processes .* 1\b")])
def test_resuming_on_another_number_of_processes_keeps_the_batches(
    overrides, tmp_path, start, command, first, then, said
):
    overrides = [*overrides, "tiny.dropout=0", "trainer.accelerator=cpu", f"data.cache_dir={tmp_path / 'cache'}"]
    assert command(*overrides, f"output_dir={tmp_path / 'reference'}").status == 0
    folder = tmp_path / "run"
    run = start(*overrides, f"output_dir={folder}", f"devices={first}")
    run.wait_for(lambda: reached(folder, 6))
    run.kill(signal.SIGTERM)
    assert run.finish().status == 143
    outcome = command(*overrides, f"output_dir={folder}", f"devices={then}")
    assert outcome.status == 0, outcome.err
    assert re.search(said, outcome.err)
    assert "dropout" not in outcome.err
    ours, theirs = (
        [float(row["train/loss"]) for row in without_times(one)] for one in (folder, tmp_path / "reference")
    )
    assert len(ours) == STEPS
    assert ours == pytest.approx(theirs, rel=1e-4)


# ------------------------------------------------------------------------------------------- with other settings


def rates(folder):
    return [float(row["train/lr"]) for row in without_times(folder)]


@pytest.fixture(scope="module")
def constant(overrides):
    """Return arguments with a constant learning rate, so that a longer run begins like a shorter one."""
    return [*(override for override in overrides if not override.startswith("max_steps")), "model.lr_schedule=constant"]


@pytest.mark.parametrize(
    "devices",
    [pytest.param([], id="1 process"), pytest.param(["devices=2"], id="2 processes", marks=pytest.mark.slow)],
)
def test_a_finished_run_with_more_steps_equals_an_uninterrupted_one(devices, constant, command, tmp_path):
    """It ended in the middle of an epoch of six steps, and its new end is given in epochs."""
    constant = [*constant, *devices, "trainer.accelerator=cpu"]
    assert command(*constant, "max_steps=4", f"output_dir={tmp_path / 'short'}").status == 0
    last = tmp_path / "short" / "checkpoints" / "last.ckpt"
    outcome = command(*constant, "max_epochs=2", f"resume={last}", f"output_dir={tmp_path / 'longer'}")
    assert outcome.status == 0, outcome.err
    assert command(*constant, "max_epochs=2", f"output_dir={tmp_path / 'reference'}").status == 0
    ours, theirs = (saved(tmp_path / name) for name in ("longer", "reference"))
    assert ours["global_step"] == theirs["global_step"] == 12
    assert all(torch.equal(ours["state_dict"][name], weight) for name, weight in theirs["state_dict"].items())


def test_a_resumed_run_has_the_rates_of_its_own_config(overrides, reference, command, tmp_path):
    """The schedule falls linearly to zero at the new end, and the model card and results.json are correct."""
    other = [*overrides, "max_steps=20", "model.lr=0.001", "model.lr_schedule=linear", "model.warmup_ratio=0"]
    other += ["model.weight_decay=0.5"]
    last = reference / "checkpoints" / "last.ckpt"
    outcome = command(*other, f"resume={last}", f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    assert rates(tmp_path / "run") == pytest.approx([0.001 * (20 - done) / 20 for done in range(STEPS, 20)])
    assert [group["weight_decay"] for group in saved(tmp_path / "run")["optimizer_states"][0]["param_groups"]] == [
        0.5,
        0,
    ]
    assert "model.lr=0.001 (was 0.003)" in outcome.err
    assert "max_steps=20 (was 16)" in outcome.err
    assert "learning rates" in outcome.err


def test_settings_of_restored_tensors_are_refused_and_named(overrides, reference, command, tmp_path):
    last = reference / "checkpoints" / "last.ckpt"
    outcome = command(
        *overrides, "max_steps=20", "model.optimizer=adafactor", f"resume={last}", f"output_dir={tmp_path / 'run'}"
    )
    assert outcome.status == 2, outcome.err
    assert re.search("model.optimizer=adamw.* adafactor", outcome.err)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_command_of_the_message_continues_a_run_whose_folder_has_other_settings(
    overrides, reference, command, tmp_path
):
    folder = shutil.copytree(reference, tmp_path / "run")
    refused = command(*overrides, "max_steps=20", f"output_dir={folder}")
    assert refused.status == 2, refused.err
    assert "max_steps=16, not 20" in refused.err
    advised = re.search(r"set (resume=\S+) (output_dir=\S+)\. ", refused.err).groups()
    outcome = command(*overrides, "max_steps=20", *advised)
    assert outcome.status == 0, outcome.err
    assert saved(tmp_path / "run-2")["global_step"] == 20
    assert saved(folder)["global_step"] == STEPS


# ------------------------------------------------------------------------------------- what a finished run keeps


@pytest.fixture(scope="module")
def best_before_last(overrides, command, tmp_path_factory):
    """Make a run whose best step is not its last one, and the same run with all of its checkpoints."""
    folder = tmp_path_factory.mktemp("kept")
    overrides = [*overrides, "monitor=train/lr"]  # highest after the warm-up
    outcome = command(*overrides, f"output_dir={folder / 'run'}")
    assert outcome.status == 0, outcome.err
    assert command(*overrides, f"output_dir={folder / 'all'}", "checkpoint.keep_all=true").status == 0
    return folder, outcome.out


@pytest.mark.rotates
def test_a_finished_run_keeps_one_checkpoint_to_resume_from(best_before_last):
    kept, every = (best_before_last[0] / name / "checkpoints" for name in ("run", "all"))
    assert {path.name for path in kept.iterdir()} == {"best.ckpt", "last.ckpt"}
    assert {path.name for path in every.iterdir()} == {"best.ckpt", "last.ckpt", "previous.ckpt"}
    written = (kept.parent / "results.json").stat().st_mtime_ns  # last: a run with it is not resumed
    assert all(path.stat().st_mtime_ns <= written for path in kept.iterdir())
    ours, theirs = (torch.load(folder / "best.ckpt", weights_only=True) for folder in (kept, every))
    assert ours["global_step"] == theirs["global_step"] < STEPS
    assert all(torch.equal(ours["state_dict"][name], weight) for name, weight in theirs["state_dict"].items())
    assert "optimizer_states" in torch.load(kept / "last.ckpt", weights_only=True)
    # AdamW has two moments for each weight, so weights are a third of a checkpoint
    sizes = [(folder / "best.ckpt").stat().st_size for folder in (kept, every)]
    assert sizes[0] / sizes[1] == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.advice("contrastive_encoders.training.finish:disk_usage")
def test_the_closing_line_gives_the_size_and_a_command_that_removes_checkpoints(
    best_before_last, overrides, command, tmp_path
):
    folder, printed = best_before_last
    every = {path.stat().st_ino: path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file()}
    assert f" {sum(every.values()) / 1e6:.1f} MB" in printed
    advised = re.search(r"(rm -r \S+checkpoints)\.", printed)[1]
    assert advised == f"rm -r {folder / 'run' / 'checkpoints'}"
    copied = shutil.copytree(folder / "run", tmp_path / "run")
    shutil.rmtree(copied / "checkpoints")
    again = [*overrides, "max_steps=1", "model.mlm_weight=0", f"backbone={copied}", f"output_dir={tmp_path / 'next'}"]
    outcome = command(*again)
    assert outcome.status == 0, outcome.err
    outcome = command(*again, "model.mlm_weight=1", "overwrite=true")  # its head was in the checkpoint
    assert outcome.status == 2, outcome.err
    assert "masked-LM head" in outcome.err


def test_the_best_checkpoint_of_a_finished_run_names_the_one_to_resume_from(
    best_before_last, overrides, command, tmp_path
):
    folder = best_before_last[0] / "run"
    overrides = [*overrides, "monitor=train/lr", "max_steps=20", f"output_dir={tmp_path / 'run'}"]
    refused = command(*overrides, f"resume={folder}/checkpoints/best.ckpt")
    assert refused.status == 2, refused.err
    assert f"resume={folder}/checkpoints/last.ckpt" in refused.err
    assert command(*overrides, f"resume={folder}/checkpoints/last.ckpt").status == 0
    assert saved(tmp_path / "run")["global_step"] == 20


@pytest.mark.parametrize("limit", ["max_steps=5", "max_epochs=1"])
def test_the_last_step_has_all_metrics(limit, overrides, command, tmp_path):
    """The last step is logged because it is the last one, not because of its number."""
    keys = ["monitor=train/uniformity", "log_every_n_steps=4", "checkpoint.every_n_steps=4", limit]
    outcome = command(*overrides, *keys, f"output_dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        found = {int(row["step"]): float(row["train/uniformity"]) for row in csv.DictReader(file)}
    *regular, last = found
    assert (regular, last % 4 > 0) == ([4], True)
    assert last == saved(tmp_path / "run")["global_step"]
    assert saved(tmp_path / "run", "best")["global_step"] == min(found, key=found.__getitem__)
