"""``python -m synthesis``, in this process or in one of its own, and the rows that it left."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import synthesis.__main__ as command
from tests.in_process import run_here

ROOT = Path(__file__).resolve().parents[2]


def here(*words):
    """In this process, which has imported torch already."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert run_here("synthesis", command.run, command.Keys, words) == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def start(*words, launcher=(), **variables):
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "synthesis", *words],
        cwd=ROOT,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )


def environment(**more):
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", **more}
    left_out = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "HYDRA_FULL_ERROR")
    return {**{key: value for key, value in os.environ.items() if key not in left_out}, **own}


def _interruptible():
    """A shell that starts the tests in the background has them ignore SIGINT, and their children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def rows_of(folder):
    return [json.loads(line) for path in sorted(folder.glob("shard-*")) for line in path.read_text().splitlines()]
