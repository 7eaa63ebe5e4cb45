"""How processes that computed together exit."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import atexit
import torch.distributed as dist
from contrastive_encoders.core.runtime.process_group import init_process_group

atexit.register(lambda: print("group:", dist.is_initialized()))  # the first to come is the last to go
init_process_group("gloo")
print("group:", dist.is_initialized())
"""


def test_no_group_outlives_the_interpreter():
    """Threads of gloo that still run abort the process occasionally: status -6, after all work is done."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        env={**os.environ, "MASTER_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # gloo itself prints to stdout in torch 2.9
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]
    assert lines == ["group: True", "group: False"]
