"""What is said while a synthesis runs, with a clock of the test's own; and what a process does whose fellows die."""

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from cli.child_processes import run_ranks
from cli.process_group import Ranks
from synthesis.decoding.continuations import Continuation
from synthesis.shards import heartbeat
from synthesis.shards.heartbeat import Heartbeat
from synthesis.shards.progress import StageProgress, choose_progress
from synthesis.shards.stage import ProgressListener
from synthesis.shards.store import SynthesisFailed

pytestmark = pytest.mark.usefixtures("no_pictures")


def run(shown, clock, answers, groups):
    """``answers``: seconds until each answer, and its text."""
    stage = SimpleNamespace(title="sts-x2", passes=lambda sampled: bool(sampled.text))
    shown.begin(stage, groups)
    for done, (seconds, label, text, tokens) in enumerate(answers, start=1):
        clock.now += seconds
        sampled = Continuation(SimpleNamespace(key=("x2", 0, label)), 0, text, closed=True, tokens=tokens)
        shown.took(sampled, SimpleNamespace(groups_done=done))
    shown.end()


def test_a_line_has_rates_yields_and_the_time_that_is_left(monkeypatch, caplog):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    caplog.set_level("INFO")
    run(StageProgress(Ranks(0, 4)), clock, [(40, "1", "good", 10), (0.1, "1", "good", 10), (40, "0", "", 30)], 12)
    assert [record.getMessage() for record in caplog.records] == [
        "sts-x2 (process 0 of 4: its own part): 1 of 12 prompts, 0.0 accepted/s, 0 tokens/s, yield 1:100%, "
        "0 a second, 0:07:20 left",
        "sts-x2 (process 0 of 4: its own part): 3 of 12 prompts, 0.0 accepted/s, 1 tokens/s, yield 1:100% 0:0%, "
        "0 a second, 0:04:00 left",
    ]


def test_the_first_process_speaks_for_all():
    for quiet, rank, wanted in ((False, 0, StageProgress), (True, 0, ProgressListener), (False, 1, ProgressListener)):
        assert type(choose_progress(Ranks(rank, 2), quiet=quiet)) is wanted


def test_processes_end_with_the_one_that_started_them(tmp_path, monkeypatch):
    """A batch system signals that one alone; here the launcher is a script that says how it was ended."""
    launcher = tmp_path / "launcher"
    launcher.write_text(
        f"#!/bin/sh\ntrap 'touch {tmp_path}/told; exit 1' TERM\ntouch {tmp_path}/begun\nwhile :; do sleep 0.05; done\n"
    )
    launcher.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(launcher))
    before = signal.getsignal(signal.SIGTERM)

    def terminate():
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    try:
        assert run_ranks("synthesis", 2) == 143
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "told").exists()


def test_a_process_that_has_gone_silent_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "SECONDS_BETWEEN", 0.01)
    with Heartbeat(tmp_path, 0, 3) as ours, Heartbeat(tmp_path, 1, 3):
        ours.watch(tmp_path, [1, 2, 4])  # the wait begins: there is no sign of process 2, but it may come
        assert (tmp_path / ".shards" / "alive-1").exists()
        ours.waiting_since -= heartbeat.SECONDS_OF_SILENCE + 60
        ours.watch(tmp_path, [1, 4])  # of process 1, which is alive
        with pytest.raises(SynthesisFailed, match=r"shards 2, 5 of process 2 of 3 are missing"):
            ours.watch(tmp_path, [1, 2, 5])
        silent = tmp_path / ".shards" / "alive-2"
        silent.touch()
        ours.watch(tmp_path, [2])
        before = silent.stat().st_mtime - heartbeat.SECONDS_OF_SILENCE - 60
        os.utime(silent, (before, before))
        with pytest.raises(SynthesisFailed, match="no sign of life has come from there for 24"):
            ours.watch(tmp_path, [2])
    assert not [path for path in (tmp_path / ".shards").iterdir() if path != silent]


def test_one_process_waits_for_nobody(tmp_path):
    with Heartbeat(tmp_path, 0, 1) as alone:
        alone.watch(tmp_path, [3])
    assert not list(tmp_path.iterdir())
