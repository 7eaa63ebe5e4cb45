"""torchrun --max-restarts: a killed rank stops and restarts the job, which ends like an undisturbed one."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = 150


def start(folder: Path, overrides: list[str]) -> "subprocess.Popen[bytes]":
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=3"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*torchrun, str(ROOT / "train.py"), *overrides, f"output_dir={folder}"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )


def ranks_of(launcher: int) -> list[int]:
    """Return the processes that torchrun has started."""
    found = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in found if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="ranks are found in Linux' /proc")
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
def test_a_killed_rank_brings_the_job_back_by_itself(trainer, tiny_mlm, tmp_path):
    rows = tmp_path / "pairs.jsonl"
    pairs = [{"anchor": f"A ferry of {n} tons.", "positive": f"Ship number {n}"} for n in range(40)]
    rows.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    overrides = f"""model=pairs data=triplets data.path={rows} backbone={tiny_mlm} batch_size=4 max_steps={STEPS}
        log_every_n_steps=1 checkpoint.every_n_steps=10 trainer={trainer} trainer.accelerator=cpu data.num_workers=0
        quiet=true""".split()
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert start(undisturbed, overrides).wait(300) == 0
    job, chance = start(killed, overrides), random.Random(7)
    for _ in range(2):
        wait_for_rows(killed / "metrics.csv", chance.randrange(12, 60))
        os.kill(chance.choice(ranks_of(job.pid)), signal.SIGKILL)
        time.sleep(3)
    assert job.wait(300) == 0
    weights = [folder / "encoder" / "model.safetensors" for folder in (killed, undisturbed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert logged(killed) == logged(undisturbed)


def logged(folder: Path) -> list[tuple[str, str]]:
    with (folder / "metrics.csv").open() as file:
        return [(row["step"], row["train/loss"]) for row in csv.DictReader(file)]


def wait_for_rows(path: Path, number: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if path.is_file() and path.read_text().count("\n") > number:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} has no {number} rows")
