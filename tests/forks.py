"""Commands as a user types them, in a fork of this process: much faster than importing torch again."""

import functools
import gc
import importlib
import logging
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import huggingface_hub.constants
import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from tqdm import tqdm

from contrastive_encoders.core.runtime.signals import INTERRUPTED
from contrastive_encoders.reports.figure import library
from tests.processes import statuses

ROOT = Path(__file__).resolve().parent.parent
TRAIN = str(ROOT / "train.py")
SCRIPTS = (TRAIN, *map(str, ROOT.glob("examples/*.py")))
# Modules that most forks would import again; a fork sets its own signals and loggers
PACKAGE = "contrastive_encoders"
WANTED = [
    *"pytorch_lightning torchmetrics transformers.models.roberta.modeling_roberta".split(),
    *(
        f"{PACKAGE}.{name}"
        for name in """datamodules.documents datamodules.row_datamodules encoders.loading.load
        encoders.objectives.simcse encoders.objectives.declutr export.sentence_transformers synthesis.recipe
        training.stage_loop evaluation.catalog""".split()
    ),
]

HEEDED = (signal.SIGINT, signal.SIGTERM)


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@functools.cache
def warm() -> None:
    """Create what each fork would create again: imports, tables of parsers, rules for names of weights."""
    for name in WANTED:
        importlib.import_module(name)
    library()  # for the page of a report; it is kept
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        compose("train", ["model=simcse", "data=triplets", "data.path='x'", "+stages.a.data.columns=[a,b]"])
    get_checkpoint_conversion_mapping("bert")


class Started:
    """A command of this project that runs in a fork, with its output in files.

    The command is the path of ``train.py`` or of an example, or a command, and its arguments. A run draws its curve.png
    and estimates its time by a probe only if ``drawn``: the curve costs half a second, the probe as much as the steps
    of a tiny run.
    """

    def __init__(
        self, target: str, arguments: Sequence[str], cwd: Path | None = None, *, drawn: bool = False, **env: str
    ) -> None:
        warm()
        if target == PACKAGE:
            target, arguments = arguments[0], arguments[1:]
        self._folder = tempfile.TemporaryDirectory(prefix="contrastive-encoders-tests-")
        self.logs = Path(self._folder.name)
        self.process = multiprocessing.get_context("fork").Process(
            target=_as_command, args=(target, arguments, self.logs, drawn, cwd, env)
        )
        for name in ("out", "err"):
            (self.logs / name).touch()  # it may be killed before it opens them
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)  # until the command begins
        self.process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def kill(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def finish(self, timeout: float = 300) -> Outcome:
        self.process.join(timeout)
        if self.process.is_alive():
            self.kill(signal.SIGKILL)
            pytest.fail(f"hangs: {self._read('err')[-2000:]}")
        return Outcome(self.process.exitcode, self._read("out"), self._read("err"))

    def wait_for(self, done: Callable[[], bool], timeout: float = 60) -> None:
        end = time.monotonic() + timeout
        while self.process.is_alive() and not done():
            assert time.monotonic() < end, f"it did not come to that: {self._read('err')[-2000:]}"
            time.sleep(0.002)

    def said(self) -> str:
        """Return the output on stderr so far."""
        return self._read("err")

    def _read(self, name: str) -> str:
        return (self.logs / name).read_text(encoding="utf-8")


def run_command(
    arguments: Sequence[object], cwd: Path = ROOT, timeout: float = 300, *, drawn: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` and return its outcome; commands of this project and processes of torchrun run in forks.

    The agent between them is covered by tests that start torchrun itself.
    """
    first, *rest = map(str, arguments)
    target = rest.pop(0) if first == "-m" else first.replace("contrastive-encoders", PACKAGE)
    if target == "torch.distributed.run":
        place = rest.index("--nproc-per-node") + 1
        return _as_ranks(
            int(rest[place]),
            [argument for argument in rest[place + 1 :] if argument not in ("-m", "--standalone")],
            cwd,
            timeout,
            env,
        )
    if target in (*SCRIPTS, PACKAGE):
        outcome = Started(target, rest, cwd, drawn=drawn, **env).finish(timeout)
        return subprocess.CompletedProcess([target, *rest], *outcome)
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )


def _as_ranks(
    number: int, arguments: Sequence[str], cwd: Path, timeout: float, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Start forks that find each other as torchrun's processes do; the first that fails ends the others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    alike = {"WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "TORCHELASTIC_RUN_ID": "forks", "GROUP_RANK": 0}
    alike |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    said = [alike | {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank} for rank in range(number)]
    ranks = [
        Started(arguments[0], arguments[1:], cwd, **{name: str(value) for name, value in one.items()}, **env)
        for one in said
    ]
    status = max(map(abs, statuses([rank.process for rank in ranks], timeout)))
    outcomes = [rank.finish() for rank in ranks]
    shown = ("".join(outcome[stream] for outcome in outcomes) for stream in (1, 2))
    return subprocess.CompletedProcess(arguments, status, *shown)


def _as_command(
    target: str, arguments: Sequence[str], logs: Path, drawn: bool, cwd: Path | None, env: Mapping[str, str]
) -> None:
    gc.freeze()  # the collector need not scan the tests' objects repeatedly: a quarter of a second each
    tqdm.set_lock(threading.RLock())  # otherwise it is the tests' own, which would wait forever for a killed fork
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(logs / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", **env}
    for name in [name for name, value in os.environ.items() if not value and name.startswith("HF_")]:
        del os.environ[name]
    importlib.reload(huggingface_hub.constants)  # it has read the environment
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background shell makes its children ignore
    if target in SCRIPTS and not drawn:
        sys.modules["contrastive_encoders.training.finish"].draw_curve = lambda *_, **__: None  # type: ignore[attr-defined]
        sys.modules["contrastive_encoders.training.callbacks.estimate"].RunEstimate.on_train_start = lambda *_: None  # type: ignore[attr-defined]
    if cwd is not None:
        os.chdir(cwd)
    Hydra.get_mode = lambda *_, **__: None  # as without hydra.mode=, which composes everything to find that out
    logging.getLogger().handlers.clear()  # pytest's
    warnings.simplefilter("default")
    sys.argv = [target, *arguments] if target in SCRIPTS else [PACKAGE, target, *arguments]
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)
    except KeyboardInterrupt:  # it arrived before the command began
        os._exit(INTERRUPTED)
    try:
        if target in SCRIPTS:
            sys.path.insert(0, str(Path(target).parent))
            runpy.run_path(target, run_name="__main__")
        else:
            runpy.run_module(PACKAGE, run_name="__main__", alter_sys=True)
    finally:
        if wandb := sys.modules.get("wandb"):
            wandb.teardown()  # this happens at exit, but a fork leaves without it: the last records are written then
