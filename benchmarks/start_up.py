"""P11: how long a command waits before it works: --help, imports, and a whole run of three steps.

    python -m benchmarks.start_up [--quick]

Wall time of new processes. Wanted: `contrastive-encoders --help` in 0.3 s, `train --help` in 2 s; core and all
of losses within 1.5 s beyond torch; a run of three steps with backbone=tiny on 2 MB of text, with nothing cached, in
25 s from start to exit, export included; the same command again, which finds that run finished, in 2 s.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import texts
from benchmarks.sides import Line, alternate, arguments, report

TORCH = "import torch"
OURS = (
    "import torch, contrastive_encoders.core, contrastive_encoders.losses as losses, pkgutil, importlib\n"
    "for module in pkgutil.iter_modules(losses.__path__): importlib.import_module(losses.__name__ + '.' + module.name)"
)
BYTES = 2_000_000


def seconds(arguments: Sequence[str], **environment: str) -> float:
    """Return the wall time of a Python process in the root of the project, in seconds."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=texts.ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return took


def train_run(corpus: Path) -> tuple[float, float]:
    """A run in an empty folder with an empty cache, and the same command again."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        words = ["model=declutr", "data=text", f"data.path={corpus}", "backbone=tiny", "max_steps=3"]
        first, again = (
            seconds(["train.py", *words, f"output_dir={run}"], CONTRASTIVE_ENCODERS_CACHE=f"{scratch}/cache")
            for _ in range(2)
        )
        if not (run / "results.json").is_file() or not (run / "encoder" / "modules.json").is_file():
            raise SystemExit(f"The run left no results.json or no encoder in {run}.")
    return first, again


def write_corpus(path: Path) -> None:
    """Documents, a line each, of 2 MB together."""
    size, kept = 0, []
    for document in texts.documents(10_000):
        line = " ".join(document.split()) + "\n"
        size += len(line.encode())
        if size > BYTES:
            break
        kept.append(line)
    path.write_text("".join(kept), encoding="utf-8")


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    sides = {
        "commands": lambda: seconds(["-m", "contrastive_encoders", "--help"]),
        "help": lambda: seconds(["train.py", "--help"]),
        "torch": lambda: seconds(["-c", TORCH]),
        "losses": lambda: seconds(["-c", OURS]),
    }
    if not options.quick:
        alternate(sides, 1)  # files come into the page cache, bytecode is written
    times = {name: statistics.median(values) for name, values in alternate(sides, rounds).items()}
    beyond = times["losses"] - times["torch"]
    lines = [
        Line("P11", "contrastive-encoders --help", "s", times["commands"], None, None, "<= 0.3 s"),
        Line("P11", "contrastive-encoders train --help", "s", times["help"], None, None, "<= 2 s"),
        Line("P11", "core and losses, beyond torch", "s", beyond, times["torch"], None, "<= 1.5 s"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus.txt"
        write_corpus(corpus)
        runs = [train_run(corpus) for _ in range(1 if options.quick else 3)]
    first, again = (statistics.median(times) for times in zip(*runs, strict=True))
    lines.append(Line("", "run of 3 steps on 2 MB, tiny", "s", first, None, None, "<= 25 s, 2 cores"))
    lines.append(Line("", "the same command, when it is finished", "s", again, None, None, "<= 2 s"))
    report("Start-up, wall time", lines, options.output)


if __name__ == "__main__":
    main()
