"""How processes that computed together part."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import atexit, sys
import torch.distributed as dist
from contrastive_encoders.runtime.process_group import leave_group_at_exit

atexit.register(lambda: print("group:", dist.is_initialized()))  # the first to come is the last to go
leave_group_at_exit()
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
print("group:", dist.is_initialized())
"""


def test_no_group_outlives_the_interpreter(tmp_path):
    """Where threads of gloo are still there, they abort the process now and then: status -6, after all work is done."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "store")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == ["group: True", "group: False"]
