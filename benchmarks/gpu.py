"""Run all benchmarks of a GPU; finished ones are kept, and a later call goes on with the others.

    python -m benchmarks.gpu [part=all|smoke|step|trainer|synthesis|embed] [device=cuda] [size=full|tiny]
        [output=outputs/gpu] [minutes=8]

Every job is a benchmark of its own with its words; see `JOBS`. As soon as one is done its figures are in
OUTPUT/gpu.json and in the table OUTPUT/gpu.md; a job that failed is there with its error, and is tried again by the
next call. A part ends after ``minutes``, wherever its job is then: what was cut is an error, too. A call goes on where
the one before ended. Status 0: all of the part is there; 1: something failed, or is left; 2: there is no such device.
"""

import contextlib
import gc
import importlib
import json
import os
import platform
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks import materials
from benchmarks.gpu_smoke import RUNS
from benchmarks.gpu_step import NotThere
from benchmarks.sides import Line
from contrastive_encoders.io.atomic import write_whole
from contrastive_encoders.reports.tables import Column, Table, markdown

KEYS = {"part": "all", "device": "cuda", "size": "full", "output": "outputs/gpu", "minutes": "8"}
PARTS = ("smoke", "step", "trainer", "synthesis", "embed")
STEP = "gpu_step --documents 64 --token-budgets 131072"
# In the order of what is to be known first; figures, not statements: each is one line of its own table
JOBS = {
    "smoke": ["gpu_smoke --runs --tests", *(f"gpu_smoke --runs {shlex.quote(name)}" for name in RUNS)],
    "step": [
        f"{STEP} --recompute off --profile OUTPUT/profile.txt --steps 4",
        *(
            f"{STEP} --backbone {backbone} --recompute off{keys}"
            for backbone in ("roberta", "smollm2")
            for keys in ("", " --keys model.compile=true", " --keys model.attn_implementation=sdpa")
        ),
        f"{STEP} --recompute on",
        "gpu_step --documents 64 --token-budgets 16384 --recompute off --steps 10",
        "gpu_step --documents 256 --token-budgets 131072 --recompute on --steps 10",
    ],
    "trainer": [f"pair_training --objectives {name} --rounds 2 --steps 60" for name in ("contrastive", "cosine")],
    "synthesis": [
        "self_debiased_generation --smollm2 --precision bf16 --inputs 12",
        "self_debiased_generation --layers 48 --width 1600 --precision bf16 --inputs 12",
    ],
    "embed": [
        *(f"sts_speed --precision {precision} --rounds 1" for precision in ("bf16", "fp32")),
        "embedding --models minilm --texts 4000 --rounds 2",
        "embedding --models smollm2 --texts 1600 --rounds 2",
    ],
}


class Refused(Exception):
    """The command line is wrong, or the device is missing; the message is a sentence."""


class OutOfTime(BaseException):
    """No Exception, as a benchmark may catch those."""


class Record:
    """The figures measured on a machine, kept in a folder as ``gpu.json`` and ``gpu.md``."""

    def __init__(self, folder: Path, machine: dict[str, str]) -> None:
        self.folder, self.path = folder, folder / "gpu.json"
        self.jobs: dict[str, dict[str, Any]] = {}
        self.machine = machine
        if self.path.exists():
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if found["machine"] != machine:
                raise Refused(f"{self.path} is of another machine ({found['machine']}): say another output=FOLDER.")
            self.jobs = found["jobs"]

    def is_done(self, job: str) -> bool:
        return "lines" in self.jobs.get(job, {})

    def is_left(self, job: str) -> bool:
        return job not in self.jobs or "error" in self.jobs[job]

    def add(self, job: str, part: str, **found: Any) -> None:
        self.jobs[job] = {"part": part, **found}
        write_whole(self.path, json.dumps({"machine": self.machine, "jobs": self.jobs}, indent=1))
        write_whole(self.folder / "gpu.md", self.table())

    def table(self) -> str:
        columns = [Column("part"), Column(""), Column("case")]
        columns += [Column(name, ".4g") for name in ("ours", "theirs", "ratio")] + [Column("unit"), Column("wanted")]
        rows: list[list[Any]] = []
        for job, found in self.jobs.items():
            for line in (Line(*one) for one in found.get("lines", [])):
                figures = [line.ours, line.theirs, line.ratio]
                rows.append([found["part"], line.figure, line.case, *figures, line.unit, line.target])
            if not found.get("lines"):
                why = found.get("error", found.get("not_there", "")).strip().splitlines()[-1]
                rows.append([found["part"], "", f"{job}: {why}", None, None, None, "", ""])
        said = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        return f"{said}\n\n{markdown(Table(columns, rows))}\n"


class Command(NamedTuple):
    parts: tuple[str, ...]
    device: str
    tiny: bool
    output: Path
    minutes: float


def parse(words: list[str]) -> Command:
    keys = dict(KEYS)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in KEYS or not equals:
            raise Refused(f"{word}: wanted KEY=VALUE with one of {', '.join(KEYS)}.")
        keys[name] = value
    if keys["part"] not in ("all", *PARTS) or keys["size"] not in ("full", "tiny"):
        raise Refused(f"part is all or one of {', '.join(PARTS)}, size is full or tiny; got {' '.join(words)}.")
    if keys["device"] != "cpu" and not torch.cuda.is_available():
        raise Refused(
            "device=cuda: torch sees no such device here. Run this where one is, or rehearse it: device=cpu size=tiny."
        )
    try:
        minutes = float(keys["minutes"])
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= 60 * 24:
        raise Refused(f"minutes={keys['minutes']}: wanted a number above 0, for each part; a day is the most.")
    parts = PARTS if keys["part"] == "all" else (keys["part"],)
    return Command(parts, keys["device"], keys["size"] == "tiny", Path(keys["output"]), minutes)


def machine_of(command: Command) -> dict[str, str]:
    name = torch.cuda.get_device_name() if command.device != "cpu" else f"CPU, {os.cpu_count()} cores"
    versions = {one: importlib.import_module(one).__version__ for one in ("torch", "transformers")}
    size = {"size": "tiny"} if command.tiny else {}
    return {"device": name, "python": platform.python_version(), **versions, **size}


def measure(job: str, command: Command) -> list[Line]:
    module, *words = shlex.split(job.replace("OUTPUT", str(command.output.resolve())))
    benchmark = importlib.import_module(f"benchmarks.{module}")
    quick = ["--quick"] if command.tiny else []
    lines: list[Line] = benchmark.measured(benchmark.parse([*words, "--device", command.device, *quick]))
    return lines


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises OutOfTime inside when they are over."""

    def stop(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 5)  # again, where it was lost in a callback
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def one_job(job: str, part: str, command: Command, record: Record, seconds: float) -> None:
    start = time.monotonic()
    try:
        with at_most(seconds):
            found: dict[str, Any] = {"lines": measure(job, command)}
    except OutOfTime:
        found = {"error": f"cut, as the {command.minutes:g} minutes of its part were over; minutes=N gives it more"}
    except NotThere as error:
        found = {"not_there": f"not there: {error}"}
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the next job may work; this one is tried again
        print("".join(traceback.format_exception(error)), file=sys.stderr)
        found = {"error": f"{type(error).__name__}: {error}"[-4000:]}
    record.add(job, part, seconds=round(time.monotonic() - start, 1), **found)
    gc.collect()
    if command.device != "cpu":
        torch.cuda.empty_cache()


def run(command: Command) -> int:
    record = Record(command.output, machine_of(command))
    for part in command.parts:
        end = time.monotonic() + 60 * command.minutes
        for job in JOBS[part]:
            if record.is_done(job):
                continue
            if (seconds := end - time.monotonic()) <= 0:
                break
            print(f"{part}: {job}", flush=True)
            one_job(job, part, command, record, seconds)
            print(f"  {json.dumps(record.jobs[job])}", flush=True)
    print(record.table())
    jobs = [job for part in command.parts for job in JOBS[part]]
    left = [job for job in jobs if record.is_left(job)]
    if left:
        print(f"{len(left)} of {len(jobs)} jobs failed or are left; the same command goes on.", file=sys.stderr)
    return 1 if left else 0


def main(words: list[str]) -> int:
    try:
        command = parse(words)
        materials.hush()
        return run(command)
    except Refused as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
