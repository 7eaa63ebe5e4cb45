"""What is wrong with several processes of a command is told once, and never by nobody; how a test waits for several."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from command import statuses as command_line
from command.statuses import exit_statuses
from contracts import InputError
from tests.processes import Child, statuses

ROOT = Path(__file__).resolve().parent.parent


def torchrun(processes: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [sys.executable, *launcher, str(ROOT / "train.py"), *words],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=declutr", "data=text", "max_stepz=3"], "there is no key 'max_stepz'"),
        (["model=declutr", "data=nli", "data.path=x"], "Choose a data that fits."),
    ],
    ids=["a key, which Hydra refuses", "a value, which we refuse"],
)
def test_what_is_wrong_on_every_process_is_told_by_one(words, said, tmp_path):
    done = torchrun(3, *words, cwd=tmp_path)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("train.py: ")]
    assert len(lines) == 1, done.stderr
    assert said in lines[0]


@pytest.mark.parametrize("kind", ["command", "fork"])
def test_one_that_failed_takes_those_that_wait_for_it_along(kind):
    """They would wait for ever: each reads from a pipe that stays open."""
    reading, writing = os.pipe()
    children: list[Child] = []
    for place in range(3):
        status = 3 if place == 1 else 0
        if kind == "command":
            code = f"import os, sys; {status} or os.read(0, 1); sys.exit({status})"
            children.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdin=reading))
        else:
            children.append(multiprocessing.get_context("fork").Process(target=read_or_leave, args=(reading, status)))
            children[-1].start()
    assert statuses(children) == [-signal.SIGKILL, 3, -signal.SIGKILL]
    os.close(reading)
    os.close(writing)


def read_or_leave(pipe: int, status: int) -> None:
    sys.exit(status or len(os.read(pipe, 1)))


def test_all_that_ends_well_is_waited_for():
    """The first ends when the others have: it reads until they have closed their ends of the pipe."""
    reading, writing = os.pipe()
    first = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=reading)
    rest = [subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=writing) for _ in range(2)]
    os.close(reading)
    os.close(writing)
    assert statuses([first, *rest]) == [0, 0, 0]


def test_what_is_wrong_on_a_later_process_alone_is_told_by_it(monkeypatch, capsys):
    waited = list[float]()
    monkeypatch.setattr(command_line.time, "sleep", waited.append)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit) as left, exit_statuses():
            raise InputError("data.path=/local: there is no such file.")
        assert left.value.code == 2
        assert capsys.readouterr().err.count("data.path=/local: there is no such file.") == 1
    assert len(waited) == 2, "rank 0 does not wait"
    assert 0 < waited[0] < waited[1]
