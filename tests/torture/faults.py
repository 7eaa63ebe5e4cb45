"""Other faults, without privileges: each is tried on a random job, which then runs to its end."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.damage import full_disk
from tests.torture.campaign import Campaign
from tests.torture.jobs import Job
from tests.torture.running import Running

REFUSED = {1, 2}  # exit codes with a one-sentence message
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "zeroed": lambda content: (
        content[: len(content) // 2] + bytes(min(64, len(content) // 2)) + content[len(content) // 2 + 64 :]
    ),
    "flipped": lambda content: (
        content[: len(content) // 2]
        + bytes(255 - one for one in content[len(content) // 2 : len(content) // 2 + 64])
        + content[len(content) // 2 + 64 :]
    ),
}
DAMAGED = (
    "last.ckpt",
    "ids*",
    "offsets*",
    "metrics.csv",
    ".contrastive-encoders.json",
    "manifest.json",
    "shard-*",
    "*.progress",
    "*.npy",
)


def disk_full(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Limit the size of every file to N bytes."""
    job, reference = _any(campaign, jobs)
    limit = int(10 ** campaign.rng.uniform(2, 6))
    folder, cache = campaign.place(), campaign.warm if campaign.rng.random() < 0.5 else campaign.home / "cold"
    with full_disk(limit):
        ended = campaign.run(job, folder, cache)
    told = f"no file beyond {limit} bytes"
    campaign.faults["a disk that is full"] += 1
    if ended.status not in {0, *REFUSED} or "Traceback" in ended.said:
        campaign.differ(
            job, told, [f"status {ended.status}" + " with a traceback" * ("Traceback" in ended.said)], ended.said
        )
    campaign.to_the_end(job, folder, cache, reference, told)


def read_only(campaign: Campaign, jobs: Sequence[Job]) -> None:
    if os.geteuid() == 0:
        campaign.left_out["a folder that is read-only"] = "root may write everywhere"
        return
    job, reference = _any(campaign, jobs)
    folder = campaign.place()
    folder.chmod(0o555)
    ended = campaign.run(job, folder, campaign.warm)
    folder.chmod(0o755)
    campaign.faults["a folder that is read-only"] += 1
    if ended.status not in REFUSED or "Traceback" in ended.said:
        campaign.differ(job, "read-only", [f"status {ended.status}"], ended.said)
    campaign.to_the_end(job, folder, campaign.warm, reference, "read-only")


def two_at_once(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Start two processes: the second is refused, or finds everything finished."""
    job, reference = _any(campaign, jobs)
    folder = campaign.place()
    both = [Running(job, folder, campaign.warm)]
    both[0].wait(campaign.rng.uniform(0, campaign.whole[job][1]))
    both.append(Running(job, folder, campaign.warm))
    ended = [one.finish() for one in both]
    campaign.faults["two processes"] += 1
    if ended[0].status != 0 or ended[1].status not in {0, 2} or any("Traceback" in one.said for one in ended):
        statuses = [one.status for one in ended]
        campaign.differ(job, "two processes", [f"statuses {statuses}"], "\n---\n".join(one.said for one in ended))
    campaign.to_the_end(job, folder, campaign.warm, reference, "two processes")


def input_changed(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Change the input between two commands: the second refuses to resume; with the old input, it resumes."""
    if not (reading := [job for job in jobs if job.reads]):
        return
    job, reference = _any(campaign, reading)
    folder, file = campaign.place(), campaign.home / "desk" / job.reads
    if not _cut_short(campaign, job, folder):
        return
    if job.target == "generate" and not any(folder.rglob("shard-*")):
        return  # another input is allowed before the first shard
    before, times = file.read_bytes(), file.stat()
    file.write_bytes(before.replace(b"ferry", b"barge").replace(b"clock", b"watch"))
    ended = campaign.run(job, folder, campaign.warm)
    file.write_bytes(before)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    campaign.faults["input changed between"] += 1
    if ended.status != 2 or "Traceback" in ended.said:
        campaign.differ(job, "input changed", [f"status {ended.status}"], ended.said)
    campaign.to_the_end(job, folder, campaign.warm, reference, "input changed")


def damaged(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Damage a file of an interrupted job: the damage is detected, or it does not matter."""
    if not (alone := [job for job in jobs if job.processes == 1]):
        return
    job, reference = _any(campaign, alone)
    folder = campaign.place()
    cache = folder.parent / "cache"
    if not _cut_short(campaign, job, folder, cache):
        return
    found = sorted(
        path for place in (folder, cache) for name in DAMAGED for path in place.rglob(name) if path.is_file()
    )
    if not found:
        return
    file, how = campaign.rng.choice(found), campaign.rng.choice(sorted(DAMAGE))
    before = file.read_bytes()
    file.write_bytes(DAMAGE[how](before))
    ended = campaign.run(job, folder, cache)
    campaign.faults[f"{how} file"] += 1
    told = f"{file.relative_to(folder.parent)} {how}"
    if ended.status in REFUSED and "Traceback" not in ended.said:
        file.write_bytes(before)
    elif ended.status != 0 or "Traceback" in ended.said:
        campaign.differ(job, told, [f"status {ended.status}"], ended.said)
        return
    campaign.to_the_end(job, folder, cache, reference, told)


def clock_shifted(campaign: Campaign, jobs: Sequence[Job]) -> None:
    """Run a process whose clocks differ by hours or years from those before."""
    if not (alone := [job for job in jobs if job.processes == 1]):
        return
    job, reference = _any(campaign, alone)
    folder = campaign.place()
    _cut_short(campaign, job, folder)
    shift = campaign.rng.choice((-1, 1)) * 10 ** campaign.rng.uniform(2, 9)
    real = time.time
    time.time = lambda: max(0.0, real() + shift)
    try:
        running = Running(job, folder, campaign.warm)
    finally:
        time.time = real
    running.finish()
    campaign.faults["a clock that was shifted"] += 1
    campaign.to_the_end(job, folder, campaign.warm, reference, f"clock shifted by {shift:.0f} s")


ALL = (disk_full, read_only, two_at_once, input_changed, damaged, damaged, clock_shifted)


def _any(campaign: Campaign, jobs: Sequence[Job]) -> tuple[Job, Path]:
    while True:
        job = campaign.rng.choice(list(jobs))
        if reference := campaign.undisturbed(job):
            return job, reference[0]


def _cut_short(campaign: Campaign, job: Job, folder: Path, cache: Path | None = None) -> bool:
    """Return whether it was in progress when it was killed."""
    for share in (0.8, 0.6, 0.4):
        running = Running(job, folder, cache or campaign.warm)
        running.wait(share * campaign.whole[job][1])
        running.hit(signal.SIGKILL, "leader")
        under_way = running.finish().status == -signal.SIGKILL
        if under_way and any(folder.iterdir()) and not any(folder.rglob("results.json")):
            return True
    return False
