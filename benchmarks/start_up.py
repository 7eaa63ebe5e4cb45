"""P11: how long a command takes before it works: --help, imports, a run of three steps, `improve`, and `embed`.

Wall time of new processes. Target: `contrastive-encoders --help` in 0.3 s, `train --help` in 0.4 s; core and all losses
within 1.5 s beyond torch; a run of three steps with backbone=tiny on 2 MB of text, with an empty cache, in 12 s from
start to exit, export included; the same command again, which finds that run finished, in 2 s. `experiment=improve` on
1,000 questions and answers with an empty cache: the end of the first step after 10 s, without the evaluation before it.
`embed`: the embeddings of one text after 5 s.
"""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import texts
from benchmarks.runner import Line, alternate

OPTIONS = {"rounds": 5}
QUICK = {"rounds": 1}
IMPORTS = (
    "import torch, contrastive_encoders.core, contrastive_encoders.losses as losses, pkgutil, importlib\n"
    "for module in pkgutil.iter_modules(losses.__path__): importlib.import_module(losses.__name__ + '.' + module.name)"
)
BYTES = 2_000_000
ROWS, STEPS = 1_000, 2
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def seconds(*arguments: str, **environment: str) -> float:
    """Return the wall time of a Python process in the root of the project."""
    command, variables = [sys.executable, *arguments], os.environ | environment
    start = time.perf_counter()
    subprocess.run(command, cwd=texts.ROOT, env=variables, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def train(corpus: Path, folder: Path) -> tuple[float, float]:
    """Return the seconds of a run with an empty cache, and of the same command again."""
    arguments = ["train.py", *"model=declutr data=text backbone=tiny max_steps=3 quiet=true".split()]
    arguments += [f"data.path={corpus}", f"output_dir={folder / 'run'}"]
    first, again = (seconds(*arguments, CONTRASTIVE_ENCODERS_CACHE=str(folder / "cache")) for _ in range(2))
    assert (folder / "run" / "encoder" / "modules.json").is_file()
    return first, again


def improve(rows: Path, folder: Path) -> dict[str, float]:
    """Return the seconds of the parts of `experiment=improve` with an empty cache, by the times of its log lines."""
    command = [sys.executable, "train.py", "experiment=improve", f"backbone={MINILM}", "data=qa", f"data.path={rows}"]
    command += [f"max_steps={STEPS}", "batch_size=64", f"output_dir={folder / 'run'}"]
    variables = os.environ | {"CONTRASTIVE_ENCODERS_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    start, times, evaluations = time.perf_counter(), dict[str, float](), list[float]()
    with subprocess.Popen(command, cwd=texts.ROOT, env=variables, **streams) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.match(r"(step \d+)[/:]", line):
                times[found[1]] = time.perf_counter() - start
            if found := re.match(r"step \d+: .*\((.*) s\)$", line):
                evaluations.append(float(found[1]))
    end = time.perf_counter() - start
    assert process.returncode == 0
    return {
        "evaluation before training": evaluations[0],
        "first step, without that evaluation": times["step 1"] - evaluations[0],
        "last step to exit, with the final evaluation": end - times[f"step {STEPS}"],
    }


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    sides = {
        "contrastive-encoders --help": lambda: seconds("-m", "contrastive_encoders", "--help"),
        "contrastive-encoders train --help": lambda: seconds("train.py", "--help"),
        "import torch": lambda: seconds("-c", "import torch"),
        "core and losses": lambda: seconds("-c", IMPORTS),
    }
    alternate(sides, 1)  # fills the page cache, and compiles
    times = {name: statistics.median(values) for name, values in alternate(sides, options.rounds).items()}
    for (name, median), target in zip(
        times.items(), ("<= 0.3 s", "<= 0.4 s", "", "<= 1.5 s beyond torch"), strict=True
    ):
        yield Line("P11", name, "s", median, target=target)
    corpus, size = folder / "corpus.txt", 0
    with corpus.open("w", encoding="utf-8") as file:
        for document in texts.documents(10_000):
            if size < BYTES:
                size += file.write(" ".join(document.split()) + "\n")
    runs = [train(corpus, folder / str(number)) for number in range(min(3, options.rounds))]
    first, again = (statistics.median(times) for times in zip(*runs, strict=True))
    yield Line("P11", "run of 3 steps on 2 MB, tiny", "s", first, target="<= 12 s, 2 cores")
    yield Line("P11", "the same command, when it is finished", "s", again, target="<= 2 s")
    rows, text, vectors = folder / "rows.csv", folder / "text.txt", folder / "vectors.npy"
    with rows.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *texts.questions(ROWS)])
    runs = [improve(rows, folder / f"improve{number}") for number in range(min(3, options.rounds))]
    for name in runs[0]:
        target = "<= 10 s, 2 cores" if name.startswith("first step") else ""
        yield Line("P11", f"improve: {name}", "s", statistics.median(run[name] for run in runs), target=target)
    text.write_text("a text\n", encoding="utf-8")
    command = ("-m", "contrastive_encoders", "embed", f"encoder={MINILM}", f"input={text}", f"output={vectors}")
    median = statistics.median(seconds(*command, "overwrite=true") for _ in range(options.rounds))
    yield Line("P11", "embed: one text, MiniLM", "s", median, target="<= 5 s")
