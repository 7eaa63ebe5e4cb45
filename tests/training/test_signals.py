"""SIGTERM and SIGINT save and exit 143 / 130, on one process and on two, whichever of them the signal reaches."""

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import toy
from pytorch_lightning.utilities import rank_zero_only

from contrastive_encoders.core.errors import TrainingError
from contrastive_encoders.io.metrics import read_rows
from contrastive_encoders.training.callbacks.graceful_shutdown import Interruption

TOY = Path(__file__).with_name("toy.py")
ROOT = TOY.parents[2]


def interrupted(folder, signum, **named):
    trainer = toy.train(folder, signal_at=7, signum=signum, **named)
    return Interruption.of(trainer).exit_status


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_one_process_saves_the_step_and_exits_as_asked(signum, status, tmp_path, in_child):
    assert in_child(interrupted, tmp_path, signum, scores={}) == status
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 7
    assert not (tmp_path / "checkpoints" / "best.ckpt").exists()  # the run is not finished


def test_an_interrupted_and_continued_run_equals_the_whole_one(tmp_path, in_child):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    in_child(toy.train, whole)
    in_child(interrupted, parts, signal.SIGTERM)
    assert in_child(toy.train, parts) == 0
    ours, theirs = (
        torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for folder in (parts, whole)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [row["step"] for row in read_rows(parts / "metrics.csv")] == [str(step) for step in range(2, 25, 2)]


def test_signal_handlers_are_restored(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    toy.train(tmp_path, max_steps=2)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_interrupt_does_not_wait():
    interruption = Interruption()
    interruption._note(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        interruption._note(signal.SIGINT, None)


def on_two_ranks(function, *arguments, **named):
    """Return exit codes of two forked processes that find each other as torchrun's workers do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [
        multiprocessing.get_context("fork").Process(target=as_rank, args=(rank, port, function, arguments, named))
        for rank in (0, 1)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    hanging = [child for child in children if child.is_alive()]
    for child in hanging:
        child.kill()
    assert not hanging, "a rank hangs"
    return [child.exitcode for child in children]


def as_rank(rank, port, function, arguments, named):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "ROLE_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "toy"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    rank_zero_only.rank = rank
    sys.exit(function(rank, *arguments, **named) or 0)


def signaled(rank, folder, signum, whom):
    signal_at = 7 if whom in (rank, "both") else -1
    trainer = toy.train(folder, devices=2, signal_at=signal_at, signum=signum)
    return Interruption.of(trainer).exit_status


@pytest.mark.rotates
@pytest.mark.parametrize("whom", [0, 1, "both"])
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_two_ranks_agree_whichever_the_signal_reaches(signum, status, whom, tmp_path):
    assert on_two_ranks(signaled, tmp_path, signum, whom) == [status, status]
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 7
    spent = saved["callbacks"]["Telemetry"]["spent"]
    assert (spent["steps"], spent["examples"]) == (7, 7 * toy.BATCH)  # examples of both ranks


def with_a_bad_loss(rank, folder):
    try:
        toy.train(folder, devices=2, module={"bad_loss_at": 8}, log_every=1000)
    except TrainingError as failure:
        (folder / f"message{rank}").write_text(str(failure))
        return 1
    return 0


def test_a_nan_on_one_rank_stops_both(tmp_path):
    assert on_two_ranks(with_a_bad_loss, tmp_path) == [1, 1]
    for rank in (0, 1):
        assert re.search(r"\bstep 8 .*NaN", (tmp_path / f"message{rank}").read_text())
    assert torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 5


def with_a_clock(rank, folder):
    # ranks that read their own clocks would save at different steps, and wait for each other forever
    minutes = 0.002 if rank == 0 else 1000.0
    toy.train(folder, devices=2, save_every=None, minutes=minutes, pause=0.03, scores={})


def test_the_clock_of_rank_0_decides_for_both(tmp_path):
    assert on_two_ranks(with_a_clock, tmp_path) == [0, 0]
    assert torch.load(tmp_path / "checkpoints" / "previous.ckpt", weights_only=True)["global_step"] < 24


def killed_and_continued(rank, folder, kill_at):
    toy.train(folder, devices=2, kill_at=kill_at)


def test_metrics_of_two_ranks_are_means_and_a_resume_repeats_them(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert on_two_ranks(killed_and_continued, whole, -1) == [0, 0]
    on_two_ranks(killed_and_continued, parts, 13)
    assert on_two_ranks(killed_and_continued, parts, -1) == [0, 0]
    columns = ("step", "train/loss", "train/norm", "train/lr", toy.SCORE)
    ours, theirs = (
        [[row.get(name) for name in columns] for row in read_rows(folder / "metrics.csv")] for folder in (parts, whole)
    )
    assert ours == theirs
    second = [list(toy.Stream(rank, 2))[1].examples.norm().item() for rank in (0, 1)]
    assert float(ours[0][2]) == pytest.approx(sum(second) / 2)


def start(command, folder, stays):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    arguments = [
        TOY,
        folder,
        "devices=2",
        "max_steps=100000",
        "save_every=1000000",
        "pause=0.01",
        "log_every=5",
        f"stays={stays}",
    ]
    return subprocess.Popen(
        [*command, *map(str, arguments)], env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )


def wait_until_it_trains(process, folder):
    for _ in range(600):
        if (folder / "metrics.csv").exists() and len(read_rows(folder / "metrics.csv")) >= 3:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    raise AssertionError("no step within a minute")


LIGHTNING = [sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    ("command", "signum", "whom", "status", "stays"),
    [
        pytest.param(LIGHTNING, signal.SIGTERM, "group", 143, 0, id="lightning-term-group", marks=pytest.mark.slow),
        pytest.param(LIGHTNING, signal.SIGINT, "leader", 130, 0, id="lightning-int-rank0", marks=pytest.mark.slow),
        # Lightning would kill it after the other has been gone for 5 seconds
        pytest.param(LIGHTNING, signal.SIGINT, "group", 130, 12, id="lightning-slow-rank0", marks=pytest.mark.slow),
        # 1 is the exit code of torchrun's own process
        pytest.param(TORCHRUN, signal.SIGTERM, "group", 1, 0, id="torchrun-term-group", marks=pytest.mark.slow),
    ],
)
def test_two_processes_save_and_stop(command, signum, whom, status, stays, tmp_path):
    process = start(command, tmp_path, stays)
    try:
        wait_until_it_trains(process, tmp_path)
        (os.killpg if whom == "group" else os.kill)(process.pid, signum)
        _, messages = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == status, messages
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] >= 10
    spent = saved["callbacks"]["Telemetry"]["spent"]
    assert spent["steps"] == saved["global_step"]
    assert spent["examples"] == toy.BATCH * saved["global_step"]  # both ranks counted
