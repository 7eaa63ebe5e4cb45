"""Start the other ranks of this node, as torchrun would, for a command that was run without a launcher."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from contrastive_encoders.core.runtime.child_processes import POLL_INTERVAL_S, TERMINATION_GRACE_S, start
from contrastive_encoders.core.runtime.signals import INTERRUPTED, TERMINATED


def start_ranks(devices: int, nodes: int = 1) -> None:
    """Start this command again for each additional device of this node, as another rank. This process becomes the first
    rank of the node.

    If there are several nodes, the user starts the command on each node and sets ``NODE_RANK``, ``MASTER_ADDR``, and
    ``MASTER_PORT``.
    """
    node = int(os.environ.get("NODE_RANK", "0"))
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "contrastive-encoders",
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT") or str(_free_port()),
        "WORLD_SIZE": str(devices * nodes),
        "LOCAL_WORLD_SIZE": str(devices),
        "GROUP_RANK": str(node),
    }
    spec = sys.modules["__main__"].__spec__  # None for a script
    program = ["-m", spec.name] if spec else [str(Path(sys.argv[0]).absolute())]
    children = [
        start([sys.executable, *program, *sys.argv[1:]], os.environ | _ranks(node * devices, place))
        for place in range(1, devices)
    ]
    os.environ |= _ranks(node * devices, 0)
    threading.Thread(target=_exit_with, args=(children,), name="ranks", daemon=True).start()


def _ranks(first: int, place: int) -> dict[str, str]:
    return {"RANK": str(first + place), "LOCAL_RANK": str(place)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _exit_with(children: list[subprocess.Popen[Any]]) -> None:
    """Exit after a child process has failed, because NCCL would otherwise wait forever for the child's rank.

    This process may be saving, so it has a minute to exit, unless the process group is not initialized yet.
    """
    while not any(child.poll() for child in children):
        time.sleep(POLL_INTERVAL_S)
    import torch.distributed as dist

    time.sleep(TERMINATION_GRACE_S if dist.is_initialized() else POLL_INTERVAL_S)
    for child in children:
        child.kill()
    codes = [child.wait() for child in children]
    os._exit(next((code for code in codes if code in (INTERRUPTED, TERMINATED)), 1))
