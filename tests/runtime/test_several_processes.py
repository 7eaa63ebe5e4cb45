"""Errors of a command with several processes are reported exactly once; and how a test waits for several processes."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from pytorch_lightning.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

from contrastive_encoders.cli.main import COMMANDS
from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime import child_processes as children
from contrastive_encoders.core.runtime import exit_codes as command_line
from contrastive_encoders.core.runtime import process_group as processes
from contrastive_encoders.core.runtime.exit_codes import exit_statuses
from tests.forks import TRAIN, Started, run_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("launched", "arguments", "said"),
    [
        ("torchrun", ["model=declutr", "data=text", "max_stepz=3"], "max_stepz=3"),
        ("forks", ["model=declutr", "data=nli", "data.path=x"], "data=nli: "),
    ],
    ids=["a key, which Hydra refuses", "a value, which we refuse"],
)
def test_an_error_of_all_ranks_is_reported_once(launched, arguments, said, tmp_path):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", TRAIN, *arguments]
    if launched == "forks":
        done = run_command(command, tmp_path)
    else:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("contrastive-encoders train: ")]
    assert len(lines) == 1, done.stderr
    assert said in lines[0]


def test_an_error_of_one_later_rank_is_reported_by_it(monkeypatch, capsys):
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


BEGIN = "from contrastive_encoders.core.runtime.child_processes import init_process; init_process()"
CHILD = f"import time; {BEGIN}; print(1, flush=True); time.sleep(60)"
PARENT = f"""import subprocess, sys
from contrastive_encoders.core.runtime import child_processes
child_processes.init_process()
child_processes.start([sys.executable, "-c", {CHILD!r}]).wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_child_processes_exit_with_their_command(number):
    """The child inherits a pipe from the command; its end is reached after both have ended."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "1\n"
    parent.send_signal(number)
    began = time.monotonic()
    assert parent.stdout.read() == ""
    assert time.monotonic() - began < 20
    assert parent.wait() == {signal.SIGKILL: -9, signal.SIGTERM: 143}[number]
    parent.stdout.close()


SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130}


def said_by(command, env=None):
    """Return exit code and errors of a process that receives Ctrl-C, as in a terminal."""

    def hear_ctrl_c():
        signal.signal(signal.SIGINT, signal.default_int_handler)

    done = subprocess.run(
        command, cwd=ROOT, env=env, check=False, preexec_fn=hear_ctrl_c, stderr=subprocess.PIPE, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_something_is_imported_is_its_exit_status(number, tmp_path):
    """The module may handle the exception that is raised within it in any way."""
    lines = ["import os, signal", "try:", f"    os.kill(os.getpid(), {number:d})", "    os.getpid()", "except: pass"]
    (tmp_path / "slow.py").write_text("\n".join(lines))
    script = f"""import sys
{BEGIN}
from contrastive_encoders.core.runtime.signals import exit_on_signals
sys.path.append(sys.argv[1])
with exit_on_signals():
    import slow
"""
    assert said_by([sys.executable, "-c", script, str(tmp_path)]) == (SIGNALS[number], "")


@pytest.mark.rotates
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "completion"])  # it imports nothing heavy
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_anything_heavy_is_imported_is_its_exit_status(number, command, tmp_path):
    for name in ("hydra", "omegaconf"):  # the first import that is neither Python's own nor this package's
        (tmp_path / f"{name}.py").write_text(f"import os, time\nos.kill(os.getpid(), {number:d})\ntime.sleep(9)\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    texts = ["texts.txt"] if command in ("adapt", "improve") else []  # they are refused without texts
    assert said_by([sys.executable, "-m", "contrastive_encoders", command, *texts], env) == (SIGNALS[number], "")


def test_more_processes_than_the_machine_can_run_are_refused():
    children.check_number("devices", 4 * children.cores())
    children.check_number("devices", 8, gpus=8)
    for number, gpus in ((4 * children.cores() + 1, 0), (9, 8)):
        with pytest.raises(InputError) as refused:
            children.check_number("devices", number, gpus)
        assert (refused.value.key, refused.value.value) == ("devices", number)


SLURM = {"SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_NODELIST": "a[03-05,7],b1", "SLURM_JOB_ID": "81234567"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}


@pytest.fixture
def environ():
    """The environment of a process that no launcher started; what Lightning writes into it is removed, too."""
    with mock.patch.dict(os.environ):
        for name in {*SLURM, *TORCHRUN, "SLURM_JOB_NAME", "SLURM_NNODES", "MASTER_ADDR"}:
            os.environ.pop(name, None)
        yield os.environ


@pytest.mark.parametrize(
    ("variables", "ranks", "others", "address"),
    [
        ({}, (0, 1), None, None),
        (SLURM, (3, 4), (4, 4), ("a03", 19567)),
        ({**SLURM, "SLURM_NNODES": "2", "MASTER_PORT": "9"}, (3, 4), (4, 2), ("a03", 9)),
        ({**SLURM, "SLURM_PROCID": "0", "SLURM_JOB_NAME": "bash"}, (0, 1), None, None),
        (TORCHRUN, (1, 2), (2, 2), ("127.0.0.1", 29500)),
        ({**SLURM, **TORCHRUN}, (1, 2), (2, 2), ("127.0.0.1", 29500)),
        ({"WORLD_SIZE": "2", "RANK": "1"}, (1, 2), None, None),
    ],
    ids=["alone", "srun", "two machines", "a shell", "torchrun", "torchrun by srun", "by hand"],
)
def test_launcher_variables_are_read_as_by_lightning(variables, ranks, others, address, environ):
    environ.update(variables)
    assert processes.find_ranks() == ranks
    assert processes.launcher_info() == others
    if address is None:
        return
    assert processes.main_address() == address
    environ["SLURM_NTASKS_PER_NODE"] = "4"  # otherwise Lightning refuses
    environment = TorchElasticEnvironment() if "TORCHELASTIC_RUN_ID" in variables else SLURMEnvironment()
    assert (environment.global_rank(), environment.world_size()) == ranks
    assert (environment.main_address, environment.main_port) == address


def as_task(rank, **more):
    """Return the variables that srun sets for one of two tasks."""
    return {
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_JOB_NAME": "job",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NODELIST": "127.0.0.1",
        **more,
    }


@pytest.mark.parametrize("rank", [0, 1])
def test_a_scoring_whose_partner_was_not_started_says_so_and_hears_sigterm(rank, tmp_path, monkeypatch):
    """While it waits, torch itself would receive no signal."""
    monkeypatch.setattr(processes, "WARN_AFTER_S", 0.2)
    process = Started("evaluate", ["encoder=x", f"data_root={tmp_path}"], **as_task(rank))
    process.wait_for(lambda: f"rank {rank} of 2" in process.said())
    process.kill(signal.SIGTERM)
    assert process.finish(20).status == 143


@pytest.mark.rotates
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_never_starts_ends_the_others_with_one_message(rank, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "RENDEZVOUS_TIMEOUT_S", 2)
    monkeypatch.setattr(processes, "WARN_AFTER_S", 1)
    done = Started("evaluate", ["encoder=x", f"data_root={tmp_path}"], **as_task(rank)).finish(60)
    assert done.status == 1
    *waits, ends = done.err.splitlines()  # on a loaded machine it warns more than once
    assert waits
    assert {line.split(" at ")[0] for line in waits} == {f"rank {rank} of 2"}
    assert ends.startswith(f"rank {rank} of 2")


def decide_as_task(task: dict[str, str], seconds: float, folder: Path) -> None:
    """Exit with the decision of the first of two tasks, which takes this many seconds."""

    def decide() -> int:
        (folder / "decides").touch()
        time.sleep(seconds)
        return 7

    os.environ.update(task)
    logging.basicConfig(filename=folder / f"said-{task['SLURM_PROCID']}", force=True)
    children.init_process()
    processes.init_process_group("gloo")
    sys.exit(processes.broadcast_from_rank_zero(decide))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("number", "status", "of_the_other"), [(signal.SIGKILL, -9, 1), (signal.SIGTERM, 143, 2), (None, 7, 7)]
)
def test_a_rank_that_waits_for_rank_zero_exits_with_it(number, status, of_the_other, tmp_path):
    first, other = (
        multiprocessing.get_context("fork").Process(target=decide_as_task, args=(task, 30 if number else 1, tmp_path))
        for task in map(as_task, (0, 1))
    )
    first.start()
    other.start()
    while not (tmp_path / "decides").exists():
        assert first.is_alive(), "it ended before its decision"
        time.sleep(0.01)
    if number is not None:
        time.sleep(1)  # the other rank waits for it
        os.kill(first.pid, number)
    other.join(20)
    first.join(20)
    assert (first.exitcode, other.exitcode) == (status, of_the_other)
    said = (tmp_path / "said-1").read_text()
    assert ("rank 1 of 2: rank 0" in said) == (number == signal.SIGKILL)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("held", ["dict", "set"])
def test_a_signal_during_the_deletion_of_an_object_is_not_lost(number, status, held):
    """Python prints an exception that is raised in a callback of a weak reference, and continues."""
    code = f"""
import os, signal, sys, time, weakref
from contrastive_encoders.core.runtime.child_processes import init_process
signal.signal(signal.SIGINT, signal.default_int_handler)
init_process()
class Thing: pass
class Hit({held}):
    def hit(self, key):
        os.kill(os.getpid(), {int(number)})
    __delitem__ = discard = hit
thing = Thing()
if {held} is dict:
    held = weakref.WeakKeyDictionary([(thing, 1)])
else:
    held = weakref.WeakSet([thing])
held.data = Hit(held.data)
try:
    del thing
    time.sleep(20)
except KeyboardInterrupt:
    sys.exit(130)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_signal_while_items_are_written_leaves_all_or_nothing(tmp_path):
    """numpy's writer of zip files prints an error if an exception leaves it in the middle of an array."""
    code = """
import os, signal
import numpy as np
from contrastive_encoders.core import ItemScores
from contrastive_encoders.io.item_scores import write_items
from contrastive_encoders.core.runtime.child_processes import init_process
init_process()
items = ItemScores(**{kind: {} for kind in ItemScores._fields} | {"gold": {"stsb": np.arange(9.0)}})
write = np.lib.format.write_array
def write_and_signal(*arguments, **named):
    os.kill(os.getpid(), signal.SIGTERM)
    write(*arguments, **named)
np.lib.format.write_array = write_and_signal
try:
    write_items("item_scores.npz", items)
finally:
    print(os.listdir())
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "[]\n", "")


def test_variables_of_a_launcher_alone_are_no_process_group(monkeypatch):
    """They may be left in a shell, or set for other processes of a container."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert processes.group_ranks() == (0, 1)
    assert processes.gather(5) == [5]
    assert processes.broadcast_from_rank_zero(lambda: 3) == 3
