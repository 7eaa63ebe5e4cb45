"""A run killed anywhere and resumed ends where the uninterrupted one ends: bitwise on one CPU process."""

import random

import pytest
import torch
import toy

from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.training.callbacks.checkpoints import find_resumable

TIMES = ("throughput/", "time/")


def without_times(folder):
    return [
        {name: cell for name, cell in row.items() if not name.startswith(TIMES)}
        for row in read_rows(folder / "metrics.csv")
    ]


def weights(path):
    return torch.load(path, weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    toy.train(folder)
    return folder


@pytest.mark.rotates
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_random_steps_and_continued_equals_the_uninterrupted_run(seed, tmp_path, uninterrupted, in_child):
    kills = sorted(random.Random(seed).sample(range(1, 25), 2))
    for step in kills:
        assert in_child(toy.train, tmp_path, kill_at=step) == -9
    assert in_child(toy.train, tmp_path) == 0
    assert without_times(tmp_path) == without_times(uninterrupted)
    for name in ("last.ckpt", "best.ckpt"):
        theirs = weights(uninterrupted / "checkpoints" / name)
        for key, value in weights(tmp_path / "checkpoints" / name).items():
            assert torch.equal(value, theirs[key]), f"{name} {key} killed at {kills}"


def test_the_dropout_matters_here(tmp_path, uninterrupted, monkeypatch):
    monkeypatch.setattr(toy, "Reseed", lambda seed: toy.pl.Callback())
    toy.train(tmp_path)
    assert without_times(tmp_path) != without_times(uninterrupted)


def test_the_curve_has_the_columns_that_it_promises(uninterrupted):
    header = (uninterrupted / "metrics.csv").read_text().splitlines()[0].split(",")
    assert header == ["step", *sorted(header[1:])]
    assert {"train/loss", "train/norm", "train/lr", toy.SCORE, "throughput/padding_share"} <= set(header)
    assert [row["step"] for row in read_rows(uninterrupted / "metrics.csv")] == [str(n) for n in range(2, 25, 2)]
    # the learning rate of step k is the schedule's (k - 1)th
    assert float(read_rows(uninterrupted / "metrics.csv")[0]["train/lr"]) == pytest.approx(0.05 / 1.1)


def test_the_cost_counts_every_step_once(tmp_path, uninterrupted, in_child):
    in_child(toy.train, tmp_path, kill_at=13)
    in_child(toy.train, tmp_path)
    for folder in (tmp_path, uninterrupted):
        states = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["callbacks"]
        spent = states["Telemetry"]["spent"]
        assert (spent["steps"], spent["examples"], spent["real_tokens"], spent["padded_tokens"]) == (24, 96, 960, 96)
        assert spent["wall_seconds"] > 0
        assert spent["peak_memory_bytes"] > 10**6


@pytest.mark.parametrize("kills", [(11, 16), (11,), (16, 21)])
def test_a_run_resumed_at_the_end_of_an_epoch_counts_its_epochs(kills, tmp_path, in_child):
    # an epoch has 10 steps, and a checkpoint is saved every 5 steps
    settings = {"max_steps": -1, "max_epochs": 3, "scores": {14: 10.0}}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    in_child(toy.train, whole, **settings)
    for step in kills:
        assert in_child(toy.train, parts, kill_at=step, **settings) == -9
    in_child(toy.train, parts, **settings)
    for name in ("last.ckpt", "best.ckpt"):
        ours, theirs = (torch.load(run / "checkpoints" / name, weights_only=True) for run in (parts, whole))
        assert (ours["epoch"], ours["global_step"]) == (theirs["epoch"], theirs["global_step"])


@pytest.mark.parametrize("save_every", [7, 5, None])
@pytest.mark.parametrize("max_epochs", [3, -1])
def test_a_run_that_ended_with_an_epoch_resumes_with_more_steps(max_epochs, save_every, tmp_path, in_child):
    settings = {"max_epochs": max_epochs, "save_every": save_every, "scores": {14: 10.0}}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    in_child(toy.train, whole, max_steps=25, **settings)
    for steps in (10, 20, 25):
        in_child(toy.train, parts, max_steps=steps, **settings)
    for name in ("last.ckpt", "best.ckpt"):
        ours, theirs = (torch.load(run / "checkpoints" / name, weights_only=True) for run in (parts, whole))
        assert (ours["epoch"], ours["global_step"]) == (theirs["epoch"], theirs["global_step"])
        assert all(torch.equal(value, theirs["state_dict"][key]) for key, value in ours["state_dict"].items())


def test_a_finished_run_resumes_with_more_steps(tmp_path, uninterrupted, in_child):
    in_child(toy.train, tmp_path, max_steps=14)
    in_child(toy.train, tmp_path)
    theirs = weights(uninterrupted / "checkpoints" / "last.ckpt")
    ours = weights(tmp_path / "checkpoints" / "last.ckpt")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_cut_short_last_checkpoint_falls_back_to_the_one_before(tmp_path, uninterrupted, in_child):
    in_child(toy.train, tmp_path, kill_at=13)
    last = tmp_path / "checkpoints" / "last.ckpt"
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    path, warning = find_resumable(tmp_path / "checkpoints")
    assert path.name == "previous.ckpt"
    assert "last.ckpt" in warning
    # killed again before the next checkpoint: the broken file must not have replaced the good one
    in_child(toy.train, tmp_path, kill_at=9)
    assert find_resumable(tmp_path / "checkpoints")[0].name == "previous.ckpt"
    assert in_child(toy.train, tmp_path) == 0
    assert without_times(tmp_path) == without_times(uninterrupted)


def test_with_accumulation_a_checkpoint_lies_between_steps(tmp_path, in_child):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    in_child(toy.train, whole, accumulate=2, max_steps=14)
    in_child(toy.train, parts, accumulate=2, max_steps=14, kill_at=8)
    in_child(toy.train, parts, accumulate=2, max_steps=14)
    assert without_times(parts) == without_times(whole)
    ours, theirs = (weights(folder / "checkpoints" / "last.ckpt") for folder in (parts, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
