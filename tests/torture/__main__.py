"""Kill every kind of job at random, resume it to its end, and compare it bit by bit with an undisturbed job.

Start: ``python -m tests.torture MINUTES=30 SEED=1``; the default seed is the date. Faults of disk, input and clock
alternate in between. The exit code is 1 if anything differed.
"""

import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from contrastive_encoders.core.runtime.child_processes import init_process
from tests.forks import warm
from tests.seed import seed
from tests.torture import faults
from tests.torture.campaign import Campaign
from tests.torture.jobs import jobs, lay_out

SLOW = ("sweep", "race")  # they start other commands


def main(arguments: list[str]) -> int:
    given = {"MINUTES": "30", "SEED": str(seed()), "ONLY": "", **dict(argument.split("=", 1) for argument in arguments)}
    init_process()
    minutes, number = float(given["MINUTES"]), int(given["SEED"])
    print(f"seed {number}", flush=True)
    home = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        return torture(home, minutes, number, given["ONLY"])
    finally:
        shutil.rmtree(home, ignore_errors=True)


def torture(home: Path, minutes: float, number: int, only: str) -> int:
    rng, end = random.Random(number), time.monotonic() + 60 * minutes
    desk = home / "desk"
    laying = multiprocessing.get_context("fork").Process(target=lay_out, args=(desk,))  # its threads end with it
    laying.start()
    laying.join()
    warm()  # otherwise the first job of a kind would count the imports, and most signals would come after its end
    known = [job for job in jobs(desk) if only in f"{job.name} {job.processes}"]
    campaign = Campaign(home, rng)
    todo: list[object] = []
    try:
        while time.monotonic() < end:
            if not todo:
                quick = [job for job in known if job.processes == 1 and job.name not in SLOW]
                todo = [*known, *quick, *quick, *faults.ALL]
                rng.shuffle(todo)
            one = todo.pop()
            if callable(one):
                one(campaign, known)
            else:
                campaign.kill(one)
    finally:  # also the findings before an interruption
        print(campaign.table([job for job in known if job not in campaign.tried], number), flush=True)
    return 1 if campaign.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
