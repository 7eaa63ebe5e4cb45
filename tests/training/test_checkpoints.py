"""Saved steps, and the choice of the best one."""

import os
import signal
from pathlib import Path

import pytest
import torch
import toy
from pytorch_lightning import Callback

from contrastive_encoders.training.callbacks.checkpoints import RunCheckpoints


def step_of(folder, name):
    return torch.load(folder / "checkpoints" / name, weights_only=True)["global_step"]


def checkpoints(trainer):
    return next(callback for callback in trainer.callbacks if isinstance(callback, RunCheckpoints))


def test_among_equal_scores_the_earlier_step_stays(tmp_path):
    trainer = toy.train(tmp_path)  # 40 at 6, 60 at 12, 60 at 18, 50 at 24
    assert (checkpoints(trainer).best_score, checkpoints(trainer).best_step) == (60.0, 12)
    assert step_of(tmp_path, "best.ckpt") == 12
    assert step_of(tmp_path, "last.ckpt") == 24
    assert step_of(tmp_path, "previous.ckpt") == 20


def test_min_mode_takes_the_smallest(tmp_path):
    trainer = toy.train(tmp_path, mode="min")
    assert checkpoints(trainer).best_step == 6
    assert step_of(tmp_path, "best.ckpt") == 6


def test_the_training_loss_can_be_monitored(tmp_path):
    trainer = toy.train(tmp_path, monitor="train/loss", mode="min", scores={}, log_every=1)
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("train/loss")
    losses = [float(row.split(",")[column]) for row in rows[1:]]
    assert checkpoints(trainer).best_step == 1 + losses.index(min(losses))


def test_the_last_partial_interval_is_saved_too(tmp_path):
    toy.train(tmp_path, max_steps=8, save_every=5)
    assert step_of(tmp_path, "last.ckpt") == 8


@pytest.mark.parametrize("save_every", [5, 4], ids=["of the end", "of the last step"])
def test_without_a_score_best_is_last(save_every, tmp_path):
    toy.train(tmp_path, max_steps=8, save_every=save_every, scores={}, monitor=None)
    ours, theirs = (tmp_path / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))
    assert (saved := ours.read_bytes()) == theirs.read_bytes()
    # as if it had been killed after its last step, before its results
    toy.train(tmp_path, max_steps=8, save_every=save_every, scores={}, monitor=None)
    assert ours.read_bytes() == theirs.read_bytes() == saved
    assert {path.name for path in ours.parent.iterdir()} == {"best.ckpt", "last.ckpt", "previous.ckpt"}


@pytest.mark.parametrize("save_every", [5, 4], ids=["of the end", "of the last step"])
def test_weights_that_a_callback_leaves_at_the_end_are_the_best(save_every, tmp_path):
    """Lightning's StochasticWeightAveraging puts the mean there; nothing is monitored."""
    averages = Callback()
    averages.on_train_end = lambda _, module: [weight.data.fill_(7) for weight in module.parameters()]
    toy.train(tmp_path, max_steps=8, save_every=save_every, scores={}, monitor=None, callbacks=[averages])
    saved = torch.load(tmp_path / "checkpoints/best.ckpt", weights_only=True)["state_dict"]
    assert all((weight == 7).all() for weight in saved.values())


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("scores", "patience", "best", "last"),
    [
        ({3: 40.0, 6: 60.0, 9: 60.0, 12: 50.0, 15: 90.0}, 2, 6, 12),  # an equal one is not better
        ({3: 40.0, 6: 30.0, 9: 50.0, 12: 40.0, 15: 30.0}, 2, 9, 15),  # a better one restarts the count
        ({3: 40.0, 6: float("nan"), 9: 50.0}, 1, 3, 6),
        ({3: 40.0, 6: 30.0, 9: 20.0}, 3, 3, 24),
    ],
)
def test_training_ends_when_patience_does(tmp_path, in_child, scores, patience, best, last):
    told = {"scores": scores, "patience": patience}
    trainer = toy.train(tmp_path / "whole", **told)
    assert (checkpoints(trainer).best_step, trainer.global_step) == (best, last)
    assert step_of(tmp_path / "whole", "last.ckpt") == last
    assert in_child(toy.train, tmp_path / "killed", kill_at=last, save_every=1, **told) == -9
    assert toy.train(tmp_path / "killed", save_every=1, **told).global_step == last
    assert toy.train(tmp_path / "killed", save_every=1, **told).global_step == last  # it has ended


def killed_at_the_rename(folder):
    replace = Path.replace

    def replace_or_die(source, target):
        if Path(target).name == "last.ckpt":
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(source, target)

    Path.replace = replace_or_die
    toy.train(folder, max_steps=8, save_every=8, scores={})


def test_where_the_final_step_is_saved_there_is_a_best_one(tmp_path, in_child):
    # a resumed run that finds nothing left to train has no later moment at which to write it
    assert in_child(killed_at_the_rename, tmp_path) == -9
    assert step_of(tmp_path, "best.ckpt") == 8
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists()
    assert in_child(toy.train, tmp_path, max_steps=8, save_every=8, scores={}) == 0
    assert step_of(tmp_path, "last.ckpt") == step_of(tmp_path, "best.ckpt") == 8


def test_the_best_score_is_remembered_over_a_kill(tmp_path, in_child):
    assert in_child(toy.train, tmp_path, kill_at=17) == -9
    trainer = toy.train(tmp_path)
    assert checkpoints(trainer).best_step == 12  # the 60 at step 18 does not beat the one before the kill


def test_the_clock_saves(tmp_path, in_child):
    # 60 ms a step and 0.003 min = 180 ms: about every third step, and never by the number of steps
    assert in_child(toy.train, tmp_path, save_every=None, minutes=0.003, pause=0.06, kill_at=20, scores={}) == -9
    assert 10 <= step_of(tmp_path, "last.ckpt") <= 19
    assert step_of(tmp_path, "last.ckpt") - step_of(tmp_path, "previous.ckpt") >= 2


def test_nothing_is_saved_before_the_clock_or_the_count_asks(tmp_path, in_child):
    assert in_child(toy.train, tmp_path, save_every=None, minutes=10, kill_at=20, scores={}) == -9
    assert not (tmp_path / "checkpoints").exists()
