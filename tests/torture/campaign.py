"""Trials: a job is started, killed, restarted until it ends, and compared; the trials are counted."""

import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.forks import TRAIN
from tests.torture.jobs import Job
from tests.torture.running import START, Ended, Running, wait_for_orphans
from tests.torture.same import differences

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MAX_KILLS = 4  # of one job
TO_END = 75.0  # seconds for the children of a killed command to end
# parts of the lines of a traceback before a command's first line or after its last; a signal's handler raises
FORK = ("<frozen", "multiprocessing", "forks.py", f'"{TRAIN}"', "core/runtime/signals.py")
DONE = ("All files are in", " vectors of ", " shows their quality.")  # the last message of a command


class Campaign:
    """Trials under ``home``; the texts and models are in ``home/desk``."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home, self.rng = home, rng
        self.whole: dict[Job, tuple[Path, float]] = {}  # output of an undisturbed job, and its seconds
        self.tried: Counter[Job] = Counter()
        self.kills: Counter[tuple[Job, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.left_out: dict[str, str] = {}  # why it could not be tried
        self.differences: list[str] = []
        self._places = 0

    # ------------------------------------------------------------------------------------- places

    def place(self) -> Path:
        """Make a new folder; ``../made`` is where a job looks for the output of another."""
        self._places += 1
        folder = self.home / "work" / str(self._places) / "here"
        folder.mkdir(parents=True)
        (folder.parent / "made").symlink_to(self.home / "made")
        return folder

    @property
    def warm(self) -> Path:
        return self.home / "cache"

    def undisturbed(self, job: Job) -> tuple[Path, float] | None:
        """Return the output of an undisturbed job and its seconds; None if it fails, which is reported once."""
        if job.name == "filter" and not (self.home / "made").exists():
            of = Job("made", "generate", _gense(self.home / "desk"), "output=../made")
            (self.home / "made").mkdir()
            self.run(of, self.place(), self.warm)
        if job not in self.whole:
            folder, began = self.place(), time.monotonic()
            ended = self.run(job, folder, self.warm)
            self.whole[job] = folder / job.result, time.monotonic() - began
            if ended.status != 0:
                self.differ(job, "undisturbed", [f"status {ended.status}"], ended.said)
        return self.whole[job] if self.whole[job][0].exists() else None

    def run(self, job: Job, folder: Path, cache: Path) -> Ended:
        return Running(job, folder, cache).finish()

    # ------------------------------------------------------------------------------------- trials

    def kill(self, job: Job) -> None:
        """Kill a job up to a few times at random moments, by random signals; then run it to the end."""
        if (reference := self.undisturbed(job)) is None:
            return
        whole, seconds = reference
        folder, self.tried[job] = self.place(), self.tried[job] + 1
        cache = self.warm if self.rng.random() < 0.5 else folder.parent / "cache"
        told = ["cold" if cache != self.warm else "warm"]
        for _ in range(self.rng.randint(1, MAX_KILLS)):
            number, at = self.rng.choice(SIGNALS), self.rng.uniform(0, 1.05 * seconds)
            whom = self.rng.choice(("leader", "all", "rank") if job.processes > 1 else ("leader",))
            running = Running(job, folder, cache)
            running.wait(at)
            if running.is_over():
                ended = running.finish()
                self.judge(job, ended, 0, whom, at, told)
                break
            running.hit(number, whom)
            told.append(f"{number.name} to {whom} at {at:.2f} s")
            self.kills[job, number.name] += 1
            ended = running.finish()
            self.judge(job, ended, number, whom, at, told)
            if self.rng.random() < 0.5 and (left := wait_for_orphans(TO_END)):
                self.differ(job, "; ".join(told), [f"processes {left} outlived it"])
            if job.once and (folder / job.result).exists():
                break
        self.to_the_end(job, folder, cache, whole, "; ".join(told))

    def judge(self, job: Job, ended: Ended, number: int, whom: str, at: float, told: list[str]) -> None:
        """Check that it ended as this signal requires; it may have finished just before."""
        allowed = {0: {0}, signal.SIGKILL: {-9, 0}, signal.SIGTERM: {143, 0}, signal.SIGINT: {130, 0}}[number]
        if number == signal.SIGKILL and whom == "rank":
            allowed = {1, 137, -9, 0}
        if number and whom == "rank":  # the others may have ended because of the missing rank
            allowed |= {1, 0}
        if number and job.processes > 1 and (at < START or any(said in ended.said for said in DONE)):
            allowed |= {-number}  # before Python can handle it, or after it has stopped handling it
        early = (at < START and job.processes > 1) or not _in_our_code(ended.said)
        if number == signal.SIGINT and early and "Traceback" in ended.said:
            allowed |= {1}  # from a fork, before the command's first line or after its last
        found = [] if ended.status in allowed else [f"status {ended.status}"]
        if number != signal.SIGKILL and not early and "Traceback" in ended.said:
            found.append("a traceback")
        if number == signal.SIGKILL and whom == "rank" and "Traceback" in ended.said:
            found.append("a traceback of those that were left")
        if found:
            self.differ(job, "; ".join(told), found, ended.said)

    def to_the_end(self, job: Job, folder: Path, cache: Path, whole: Path, told: str) -> None:
        """Resume a job, compare it, and delete it."""
        is_over = job.once and (folder / job.result).exists()  # a signal may come between the rename and the exit
        ended = Ended(0, "") if is_over else self.run(job, folder, cache)
        found = [] if ended.status == 0 else [f"status {ended.status} when it was continued"]
        found += ["a traceback when it was continued"] if "Traceback" in ended.said else []
        if not found:
            found += differences(folder / job.result, whole)
            found += [f"processes {left} outlived it"] if (left := wait_for_orphans(TO_END)) else []
        if found:
            self.differ(job, told, found, ended.said)
        else:
            shutil.rmtree(folder.parent)

    def differ(self, job: Job, told: str, found: list[str], said: str = "") -> None:
        self.differences.append(f"{job.name} ({job.processes}), {told}: {', '.join(found)}")
        at = said.find("Traceback")
        shown = said[-1500:] if at < 0 else said[max(0, at - 300) : at + 4000]
        sys.stderr.write(f"DIFFERS {self.differences[-1]}\n{shown}\n")

    # ------------------------------------------------------------------------------------- the table

    def table(self, not_tried: list[Job], seed: int) -> str:
        names = [number.name for number in SIGNALS]
        lines = [f"| job | processes | trials | {' | '.join(names)} | differed |", f"|---|{'---|' * (len(names) + 3)}"]
        for job in sorted(self.tried):
            own = sum(one.startswith(f"{job.name} ({job.processes})") for one in self.differences)
            counts = " | ".join(str(self.kills[job, name]) for name in names)
            lines.append(f"| {job.name} | {job.processes} | {self.tried[job]} | {counts} | {own} |")
        lines += [
            "",
            "| fault | times |",
            "|---|---|",
            *(f"| {name} | {count} |" for name, count in sorted(self.faults.items())),
        ]
        lines += ["", *(f"could not be tried: {name} ({why})" for name, why in sorted(self.left_out.items()))]
        lines += (
            [f"there was no time for: {', '.join(f'{job.name} ({job.processes})' for job in not_tried)}"]
            if not_tried
            else []
        )
        lines += [
            f"seed {seed}: {sum(self.kills.values())} kills, {len(self.differences)} differences",
            *self.differences,
        ]
        return "\n".join(lines)


def _gense(desk: Path) -> Sequence[str]:
    from tests.torture.jobs import jobs

    return next(job.overrides for job in jobs(desk) if job.name == "gense")


def _in_our_code(said: str) -> bool:
    """Return whether a traceback has a line beyond those of the code that starts and ends a fork."""
    places = [line for line in said.splitlines() if line.startswith('  File "')]
    return any(not any(name in one for name in FORK) for one in places)
