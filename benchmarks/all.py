"""Measure every figure that a CPU can, one after the other, on one machine at one commit.

    python -m benchmarks.all [--list] [--figures P1 P9 ...] [--hours 8] [--output outputs/benchmarks/all] [--quick]

First it says which are due, and the hours that they take: a figure is due where OUTPUT/figures.json does not have it of
this commit and this machine. Each runs in a process of its own, and is in OUTPUT/figures.json and the table
OUTPUT/figures.md as soon as it is done, so that the same command goes on with the next. None begins that would go
beyond ``--hours``. Status 0: nothing is due; 1: something failed, or is left.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sides import Line
from benchmarks.texts import ROOT
from contrastive_encoders.io.atomic import write_whole
from contrastive_encoders.io.results import environment
from contrastive_encoders.reports.tables import Table, columns, markdown

OUTPUT = ROOT / "outputs" / "benchmarks" / "all"


class Job(NamedTuple):
    """A benchmark and its arguments. ``minutes`` is a guess for two cores; a measured time replaces it."""

    figure: str
    words: str
    minutes: float

    @property
    def figures(self) -> list[str]:
        return self.figure.split(", ")


JOBS = [
    Job("P11", "start_up", 2),
    Job("P3", "nt_xent", 1),
    Job("P18", "workers --cluster", 1),
    Job("P4", "span_sampling", 1),
    Job("P5", "padding", 7),
    Job("P2", "declutr_step", 9),
    Job("P6", "chunk_memory", 8),
    Job("P7", "sts_speed --rounds 2", 5),
    Job("E1, P16", "embedding", 10),
    Job("P22", "model_memory", 3),
    Job("P20", "sharded_memory", 3),
    Job("P23", "layer_memory", 5),
    Job("P21", "token_store", 4),
    Job("equal texts", "equal_texts --rounds 7", 2),
    Job("P24", "distillation --rounds 2 --steps 4", 2),
    Job("P10", "triplet_synthesis --rounds 3", 3),
    Job("P9", "self_debiased_generation --inputs 32 --shift 1.4375", 6),
    Job("P9", "self_debiased_generation --smollm2 --inputs 48 --precision bf16", 12),
    Job("P15", "mntp_and_contrast --rounds 1", 3),
    Job("P14", "lora_training --rounds 1 --steps 3", 10),
    Job("P1", "pair_training --rounds 3 --steps 10", 7),
    Job("P12", "many_rows", 20),
    Job("memory", "synthesis_memory", 8),
    Job("E5", "improve", 40),
    Job("P8", "senteval_classifiers --folds 1 --clock cpu", 30),
]


def is_due(found: dict[str, Any], job: Job, here: dict[str, Any]) -> bool:
    kept = found.get(job.words)
    return kept is None or "error" in kept or any(kept[name] != value for name, value in here.items())


def minutes_of(found: dict[str, Any], job: Job, here: dict[str, Any]) -> float:
    """What it took on this machine before, or the guess."""
    kept = found.get(job.words, {})
    known = kept.get("machine") == here["machine"] and "error" not in kept and kept.get("quick") == here["quick"]
    return kept["seconds"] / 60 if known else job.minutes


def measure(job: Job, quick: bool) -> dict[str, Any]:
    """Return the lines of the benchmark and its seconds; or ``error``, the end of what it said."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lines.jsonl"
        name, *words = shlex.split(job.words)
        command = [sys.executable, "-m", f"benchmarks.{name}", *words, "--output", str(output)]
        began = time.monotonic()
        done = subprocess.run(
            [*command, *(["--quick"] if quick else [])],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={"OMP_WAIT_POLICY": "passive", **os.environ},
        )
        seconds = round(time.monotonic() - began, 1)
        if done.returncode or not output.exists():
            return {"error": (done.stderr or done.stdout)[-2000:], "seconds": seconds}
        lines = [
            line for record in output.read_text(encoding="utf-8").splitlines() for line in json.loads(record)["lines"]
        ]
        return {"lines": lines, "seconds": seconds}


def table(found: dict[str, Any]) -> str:
    """Markdown: a row for each line of each benchmark, with its command, machine and commit."""
    rows = list[list[Any]]()
    for words, kept in found.items():
        about = [f"`python -m benchmarks.{words}`", f"{kept['machine']}, {kept['commit'][:8]}"]
        if "error" in kept:
            rows.append(["", kept["error"].strip().splitlines()[-1], None, None, None, "", "", *about])
        for line in (Line(**one) for one in kept.get("lines", [])):
            rows.append([line.figure, line.case, line.ours, line.theirs, line.ratio, line.unit, line.target, *about])
    heads = [*columns("figure", "case"), *columns("ours", "theirs", "ratio", number=".4g")]
    return markdown(Table([*heads, *columns("unit", "wanted", "command", "machine, commit")], rows)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="say what is due, and measure nothing")
    parser.add_argument(
        "--figures", nargs="+", choices=sorted({name for job in JOBS for name in job.figures}), metavar="FIGURE"
    )
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all run")
    asked = parser.parse_args()
    path = asked.output / "figures.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    about = environment()
    machine = f"{about['device']}, {os.cpu_count()} cores, torch {about['versions']['torch']}"
    here = {"commit": about["git_commit"] or "unknown", "machine": machine, "quick": asked.quick}
    jobs = [job for job in JOBS if not asked.figures or set(job.figures) & set(asked.figures)]
    due = [job for job in jobs if is_due(found, job, here)]
    for job in due:
        print(f"{job.figure:12} {minutes_of(found, job, here):5.0f} min  python -m benchmarks.{job.words}")
    hours = sum(minutes_of(found, job, here) for job in due) / 60
    print(f"{len(due)} of {len(jobs)} are due, about {hours:.1f} hours. {machine}, {here['commit'][:8]}", flush=True)
    end, failed, left = time.monotonic() + 3600 * asked.hours, 0, 0
    for job in due if not asked.list else []:
        if time.monotonic() + 60 * minutes_of(found, job, here) > end:
            left += 1
            continue
        print(f"{job.figure}: {job.words}", flush=True)
        found[job.words] = {**measure(job, asked.quick), **here, "date": time.strftime("%Y-%m-%d")}
        failed += "error" in found[job.words]
        asked.output.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(found, indent=1))
        write_whole(asked.output / "figures.md", table(found))
    if failed or left:
        print(f"{failed} failed, {left} are left for want of time; the same command goes on.", file=sys.stderr)
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
