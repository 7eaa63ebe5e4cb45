"""Early termination: trials of a sweep that end early, counted by hand; they are recorded and not started again."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from contrastive_encoders.cli.sweep import run
from contrastive_encoders.comparison import run_scheduler as processes
from contrastive_encoders.comparison.collect import STOPPED_FILE, collect
from contrastive_encoders.comparison.study import Trials
from contrastive_encoders.comparison.sweep_file import read_sweep, rungs_of

ROOT = Path(__file__).resolve().parents[2]
METRIC = "stsb-dev/cosine/spearman"
# Logs its learning rate as the score; a bad one then waits for the signal, as a long training would.
SCORER = f"""
import json, os, pathlib, signal, sys
from contrastive_encoders.core.runtime.child_processes import init_process
init_process()
keys = dict(override.split("=", 1) for override in sys.argv[1:])
folder = pathlib.Path(keys["output_dir"]); folder.mkdir(parents=True, exist_ok=True)
score = float(keys["model.lr"])
(folder / "pid").write_text(str(os.getpid()))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.alarm(60)
(folder / "metrics.csv").write_text("step,{METRIC}\\n1,%f\\n" % score)
if score < 2: signal.pause()
results = dict(version=2, objective="m", backbone="b", intervals={{}}, recipe=keys, best_step=1, seeds=[1],
    versions={{}}, scores={{"{METRIC}": score}}, device="", processes=1, git_commit=None, data=[], overlap={{}},
    cost=dict(steps=1, examples=1, real_tokens=1, padded_tokens=0, wall_seconds=1, peak_memory_bytes=1))
(folder / "results.json").write_text(json.dumps(results))
"""


@pytest.fixture
def judged(tmp_path):
    """Log scores for a trial of a sweep with early termination, and return whether the trial continues."""

    def make(goal: str = "maximize", **early):
        content = {
            "method": "grid",
            "metric": {"name": METRIC, "goal": goal},
            "command": ["${args_no_hyphens}"],
            "early_terminate": {"type": "hyperband", **early},
            "parameters": {"model.lr": {"values": [*"abcd"]}},
        }
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        trials = Trials(read_sweep(tmp_path / "sweep.yaml"), tmp_path / "record", [], None, 1)
        jobs = list(trials.jobs())

        def verdict(place: int, *scores: float) -> str:
            jobs[place].folder.mkdir(parents=True, exist_ok=True)
            rows = "".join(f"{step},{score}\n" for step, score in enumerate(scores))
            (jobs[place].folder / "metrics.csv").write_text(f"step,{METRIC}\n{rows}", encoding="utf-8")
            return trials.stop_reason(jobs[place])

        return verdict

    return make


def numbers(reason):
    return re.findall(r"\b\d[\d.]*\b", reason.rstrip("."))


def test_a_trial_is_judged_among_those_at_its_rung(judged):
    verdict = judged(min_iter=1, eta=3)
    assert verdict(0, 50, 60) == ""
    assert verdict(1, 10) == ""  # two trials are too few
    assert numbers(verdict(2, 40)) == ["40.00", "1"]
    assert verdict(3, 55) == ""
    assert verdict(3, 55, 54) == ""  # between two rungs
    assert verdict(0, 50, 60, 70) == verdict(1, 10, 20, 80) == ""
    assert numbers(verdict(3, 55, 54, 53)) == ["55.00", "3"]  # the best until there


def test_smaller_may_be_better(judged):
    verdict = judged("minimize", min_iter=1)
    assert [bool(verdict(place, score)) for place, score in enumerate((1, 2, 3))] == [False, False, True]


@pytest.mark.parametrize(
    ("said", "rungs"),
    [
        ({"min_iter": 3}, (3, 3, None)),
        ({"min_iter": 2, "eta": 2}, (2, 2, None)),
        ({"max_iter": 27, "s": 2}, (3, 3, 27)),
    ],
)
def test_rungs_are_the_bands_of_weights_and_biases(said, rungs):
    """The example of the W&B manual: max_iter 27, s 2 and eta 3 stop at 3 and 9."""
    assert rungs_of({"type": "hyperband", **said}, Path("x")) == rungs


def test_the_last_iteration_is_not_judged(judged):
    verdict = judged(max_iter=3, s=1, eta=2)
    assert verdict(0, 5, 5, 5) == ""
    assert verdict(1, 6, 4, 4) == ""
    assert numbers(verdict(2, 1, 1)) == ["1.00", "1"]
    again = judged(max_iter=4, s=1, eta=2)  # judged at 2, but not at 4
    assert again(0, 5, 5, 5, 5) == again(1, 6, 6, 6, 4) == ""


@pytest.fixture
def arguments(tmp_path, monkeypatch) -> list[str]:
    """Return the arguments of a sweep of four trials, the third of which is worse than the first two."""
    scorer = tmp_path / "scorer.py"
    scorer.write_text(textwrap.dedent(SCORER), encoding="utf-8")
    monkeypatch.setattr(processes, "TRAIN", (str(scorer),))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    content = {
        "program": "train.py",
        "method": "grid",
        "metric": {"name": METRIC, "goal": "maximize"},
        "early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2},
        "command": ["${program}", "${args_no_hyphens}"],
        "parameters": {"model.lr": {"values": [3, 4, 1, 5]}},
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return [str(path), f"output={tmp_path / 'out'}"]


def test_a_trial_is_really_ended_and_stays_so(arguments, tmp_path, caplog):
    caplog.set_level("INFO")
    assert run(arguments) == 0
    (stopped,) = (tmp_path / "out" / "runs").glob(f"*/{STOPPED_FILE}")
    assert (stopped.parent / "metrics.csv").read_text().endswith("1,1.000000\n")
    assert len(list((tmp_path / "out" / "runs").glob("*/results.json"))) == 3
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert [bool(line["early"]) for line in lines] == [False, False, True, False]
    assert re.search(r"\bearly\b", caplog.text)
    assert run(arguments) == 0
    assert len((tmp_path / "out" / "trials.jsonl").read_text().splitlines()) == 4  # no trial was started again
    runs, skipped = collect([str(tmp_path / "out")])
    assert len(runs) == 3
    assert [one.path for one in skipped] == [stopped.parent]
    assert numbers(skipped[0].reason)[-2:] == ["1.00", "1"]


SWEEPER = """
import sys
from pathlib import Path
from contrastive_encoders.comparison import run_scheduler as processes
processes.TRAIN = (sys.argv[1],)
folder = Path(sys.argv[2])
with processes.open_workers(folder.parent) as pool:
    processes.run_all(pool, [processes.Job("a", ["model.lr=1"], folder)], Path(sys.argv[3]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is watched by a descriptor of Linux")
def test_runs_end_with_a_sweep_that_was_killed(arguments, tmp_path):
    sweeper = started(tmp_path)
    run_of_it = os.pidfd_open(int((tmp_path / "a" / "pid").read_text(encoding="utf-8")))
    sweeper.send_signal(signal.SIGKILL)
    sweeper.wait()
    assert select.select([run_of_it], [], [], 50)[0]  # it has ended; its own alarm would come after a minute
    os.close(run_of_it)


def started(folder: Path) -> subprocess.Popen:
    """Start a sweep and wait until its run waits for a signal."""
    sweeper = subprocess.Popen(
        [sys.executable, "-c", SWEEPER, folder / "scorer.py", folder / "a", folder / "record"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    while not (folder / "a" / "metrics.csv").exists():
        assert sweeper.poll() is None
    return sweeper


def test_sigterm_ends_a_sweep_with_143(arguments, tmp_path):
    sweeper = started(tmp_path)
    sweeper.terminate()
    assert sweeper.wait(timeout=60) == 143
