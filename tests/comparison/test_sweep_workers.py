"""A sweep whose worker or driver is killed has the same trials and the same best trial as an undisturbed sweep."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_encoders.cli.sweep import run
from contrastive_encoders.comparison import run_scheduler as processes
from tests.comparison.slow_runs import kill_first, recorded, steps, when_under_way, write_sweep

ROOT = Path(__file__).resolve().parents[2]
COUNTED = "0123456789"
SWEEPER = """
import sys
from pathlib import Path
from contrastive_encoders.core.runtime.signals import raise_signals
from contrastive_encoders.comparison import run_scheduler as processes
from contrastive_encoders.cli.sweep import run
raise_signals()
processes.TRAIN = (sys.argv[1],)
sys.exit(run(sys.argv[2:]))
"""


@pytest.fixture
def arguments(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(processes, "TRAIN", (str(tmp_path / "program.py"),))
    return write_sweep(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    arguments = write_sweep(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "TRAIN", (str(folder / "program.py"),))
        assert run(arguments) == 0
    best, trials = recorded(arguments)
    assert best
    assert len(trials) == 4
    return best, trials


def swept(folder: Path, arguments: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SWEEPER, folder / "program.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


@pytest.mark.rotates
def test_a_trial_whose_worker_is_killed_goes_on_in_another(arguments, undisturbed, tmp_path, caplog):
    killed = when_under_way(tmp_path / "out", 2, kill_first)
    assert run(arguments) == 0
    killed.join()
    assert "(signal 9)" in caplog.text
    assert recorded(arguments) == undisturbed
    assert set(steps(tmp_path / "out").values()) == {COUNTED}, "each continued where it had stopped"


@pytest.mark.slow
def test_a_sweep_goes_on_after_its_driver_is_killed(arguments, undisturbed, tmp_path):
    driver = swept(tmp_path, arguments)
    when_under_way(tmp_path / "out", 2, lambda _: driver.kill()).join()
    driver.wait()
    assert run(arguments) == 0
    assert recorded(arguments) == undisturbed
    assert set(steps(tmp_path / "out").values()) == {COUNTED}


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGTERM, os.kill), pytest.param(signal.SIGINT, os.killpg, marks=pytest.mark.slow)]
)
def test_a_signal_ends_all_runs_which_save_their_state(arguments, undisturbed, tmp_path, number, send):
    driver = swept(tmp_path, arguments)
    when_under_way(tmp_path / "out", 2, lambda _: send(driver.pid, number)).join()
    assert driver.wait(60) == (143 if number == signal.SIGTERM else -signal.SIGINT)  # for a command the latter is 130
    assert len(steps(tmp_path / "out")) == 2
    assert run(arguments) == 0
    assert recorded(arguments) == undisturbed
    assert set(steps(tmp_path / "out").values()) == {COUNTED}


def test_a_folder_may_have_a_name_that_means_something_to_hydra_or_in_an_address(arguments, tmp_path):
    program = (tmp_path / "program.py").read_text()
    parse = "OverridesParser.create().parse_overrides(sys.argv[1:])"
    read = f"{{one.key_or_group: str(one.value()) for one in {parse}}}"  # as train.py reads them
    start = "from hydra.core.override_parser.overrides_parser import OverridesParser\n"
    before = 'dict(override.split("=", 1) for override in sys.argv[1:])'
    assert before in program
    (tmp_path / "program.py").write_text(start + program.replace(before, read))
    output = tmp_path / "it's (a), 50%? #1"
    assert run([*arguments[:1], "trials=1", f"output={output}"]) == 0
    assert {path.name for path in output.iterdir()} >= {"sweep.json", "runs", "trials.jsonl"}
    assert len(list(output.glob("runs/*/results.json"))) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"program.py", "sweep.yaml", output.name}


def test_a_trial_that_kills_its_workers_is_named_and_the_others_are_whole(arguments, tmp_path, caplog):
    arguments = write_sweep(tmp_path, [1, 666, 3])
    assert run(arguments) == 1
    assert re.search(r"trial 1: lr=666 .*\b3 ", caplog.text)
    states = [state for _, state, _ in recorded(arguments)[1]]
    assert (states[0], states[2]) == ("COMPLETE", "COMPLETE")
