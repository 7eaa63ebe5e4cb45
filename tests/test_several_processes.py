"""What is wrong with a command that torchrun started several times is told once, and never by nobody."""

import subprocess
import sys
from pathlib import Path

import pytest

import command_line
from command_line import exit_statuses
from contracts import InputError

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
