"""Processes that write one data set side by side: which one this is, and how to start them."""

import os
import signal
import subprocess
import sys
from typing import NamedTuple

from command.config_files import finding_our_modules

INTERRUPTED = 130


class Ranks(NamedTuple):
    """This process among those that write the same data set."""

    rank: int = 0
    world: int = 1


def find_ranks() -> Ranks:
    """What torchrun or srun have started."""
    here = os.environ
    if "WORLD_SIZE" in here:
        return Ranks(int(here.get("RANK", "0")), int(here["WORLD_SIZE"]))
    if "SLURM_PROCID" in here and here.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        return Ranks(int(here["SLURM_PROCID"]), int(here.get("SLURM_NTASKS", "1")))
    return Ranks()


def start_processes(number: int) -> int:
    """The same command on so many processes; its exit status.

    A signal that ends this process ends them too, and they leave what is whole.
    """
    here = ("annotate=", "annotations=", "publish=")  # done by this process, once
    words = [word for word in sys.argv[1:] if not word.lstrip("+").startswith(here)]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    with subprocess.Popen([*launcher, "-m", "synthesis", *words], env=finding_our_modules(os.environ)) as started:
        told: list[int] = []

        def tell(number: int, _: object) -> None:
            told.append(128 + number)
            started.terminate()

        signal.signal(signal.SIGTERM, tell)
        try:
            status = started.wait()
        except KeyboardInterrupt:  # they have it too, and are leaving
            started.wait()
            return INTERRUPTED
        return told[0] if told else status if status >= 0 else 128 - status  # of a launcher that was killed
