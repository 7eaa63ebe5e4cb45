"""The estimate of time and memory that `experiment=improve` prints, against what the run takes.

    python -m benchmarks.improve_estimate DATA.csv [KEY=VALUE ...] [--models MiniLM base] [--repeat 2]

All-MiniLM-L6-v2, and a BERT of base size with random weights and the same tokenizer, are trained on the rows with the
default settings. Both estimates should be within 30 % of the run. All clocks are those of CPU time on one thread, so
that other work on the machine counts little.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.texts import ROOT
from contrastive_encoders.io.installed_models import find_installed

ESTIMATE = re.compile(r"estimate +(.*?): (\d+):(\d+):(\d+) of training.*?, ([\d.]+) GiB")
# modules that wait with a timeout keep the true clock: they are loaded first
TRAIN = """
import concurrent.futures, queue, runpy, subprocess, sys, threading, time
time.monotonic = time.perf_counter = time.process_time
sys.argv[0] = "train.py"
runpy.run_path("train.py", run_name="__main__")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--models", nargs="+", choices=["MiniLM", "base"], default=["MiniLM", "base"])
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_intermixed_args()
    minilm = find_installed("sentence-transformers/all-MiniLM-L6-v2") or "sentence-transformers/all-MiniLM-L6-v2"
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        AutoTokenizer.from_pretrained(minilm).save_pretrained(base)
        BertModel(BertConfig()).save_pretrained(base)  # 12 layers, 768 wide
        backbones = {"MiniLM": str(minilm), "base": str(base)}
        for name in options.models:
            for number in range(1, options.repeat + 1):
                print(f"{name}, run {number}", flush=True)
                words = [f"data.path={options.path.resolve()}", f"backbone={backbones[name]}", *options.settings]
                measure(words, Path(folder) / f"{name}-{number}")


def measure(words: list[str], output: Path) -> None:
    """Train once, and print a line for each estimate."""
    command = [sys.executable, "-c", TRAIN, "experiment=improve", *words, f"output_dir={output}"]
    clocks = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | clocks, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    spent = json.loads((output / "results.json").read_text(encoding="utf-8"))["spent"]
    seconds, gib = spent["wall_seconds"], spent["peak_memory_bytes"] / 2**30  # scoring at the start is not in them
    for when, *clock, memory in ESTIMATE.findall(done.stderr):
        hours, minutes, rest = map(int, clock)
        estimate = 3600 * hours + 60 * minutes + rest
        print(
            f"  {when:14} {estimate:6,} s of {seconds:6,.0f} s ({estimate / seconds - 1:+.0%}), "
            f"{memory} GiB of {gib:.1f} GiB ({float(memory) / gib - 1:+.0%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
