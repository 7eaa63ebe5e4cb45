"""S1 to S5: how time and memory grow with the batch, the length of texts, the model, the data, and the inputs.

Each point is a command in a process of its own: for S1 to S3, `train` with three steps, whose third one is timed; for
S4, `train` with one step; for S5, `generate`. The ratio compares a point with the first one of its row: the growth of
its time (or memory) divided by the growth of its size. 1.00x is linear growth; less is better. For S3, the size is the
number of weights outside the token embeddings.
"""

import argparse
import csv
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import materials, texts
from benchmarks.runner import Line, resident

OPTIONS = {
    "figures": ["S1", "S2", "S3", "S4", "S5"],
    "pairs": [64, 512, 2_048, 8_192],
    "lengths": [32, 128, 512],
    "decoder_lengths": [32, 512, 4_096],
    "tokens": 8_192,  # of the anchors of a batch for S2
    "megabytes": [10, 100, 1_000],
    "inputs": [2_000, 20_000, 100_000],
    "mpnet": "",
}
QUICK = {
    "pairs": [4, 8],
    "lengths": [8, 16],
    "decoder_lengths": [8],
    "tokens": 32,
    "megabytes": [1],
    "inputs": [20, 40],
}
WEIGHTS = {"MiniLM": 10.6e6, "all-mpnet-base-v2": 85.6e6, "SmolLM2-135M": 106.2e6}  # outside the token embeddings


STEP = (
    "model=pairs model.pooling=mean data=qa max_steps=3 log_every_n_steps=1 evaluation.suite=[] quiet=true "
    "overwrite=true"
)


class Point(NamedTuple):
    case: str
    size: float
    seconds: float
    memory: float


def run(*arguments: str, folder: Path, **environment: str) -> tuple[float, float]:
    """Run a command of the project; return its wall time and its peak memory."""
    command = [sys.executable, "-m", "contrastive_encoders", *arguments]
    start, peak = time.perf_counter(), 0
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            command, cwd=texts.ROOT, env=os.environ | environment, stdout=log, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            peak = max(peak, resident("VmHWM", process.pid))  # ru_maxrss of wait4 begins at the memory of this process
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{(folder / 'log.txt').read_text()[-2000:]}")
    return time.perf_counter() - start, peak


def step(folder: Path, rows: Path, backbone: Path, case: str, size: float, pairs: int, length: int) -> Point:
    """Measure the third step of supervised contrastive training on ``pairs`` pairs of ``length`` tokens each."""
    keys = [f"data.path={rows}", f"backbone={backbone}", f"output_dir={folder / 'run'}", f"batch_size={pairs}"]
    keys += [f"model.max_length={length}", f"data.max_length={length}"]
    _, memory = run("train", *STEP.split(), *keys, folder=folder)
    with (folder / "run" / "metrics.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    return Point(case, size, pairs / float(last["throughput/documents_per_s"]), memory)


def write_rows(path: Path, count: int, words: int) -> Path:
    """Write ``count`` pairs of different texts of at least ``words`` words, from documents."""
    stream = itertools.chain.from_iterable(document.split() for document in itertools.cycle(texts.documents(500)))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "answer"))
        for number in range(count):
            writer.writerow(f"{number} {side} {' '.join(itertools.islice(stream, words))}" for side in "ab")
    return path


def first_step(folder: Path, megabytes: int) -> Point:
    """Measure the time from the command to the end of the first step of DeCLUTR on a text file, with an empty cache."""
    folder.mkdir()
    corpus, size, end = folder / "corpus.txt", 0, megabytes * 10**6
    with corpus.open("w", encoding="utf-8") as file:
        for number, document in enumerate(itertools.cycle(texts.documents(20_000))):
            if size >= end:
                break
            size += file.write(f"{number} {' '.join(document.split())}\n")
    keys = ["model=declutr", "data=text", f"data.path={corpus}", f"backbone={materials.packaged_minilm()}"]
    keys += ["max_steps=1", "batch_size=2", "quiet=true", "evaluation.suite=[]", f"output_dir={folder / 'run'}"]
    seconds, memory = run("train", *keys, folder=folder, CONTRASTIVE_ENCODERS_CACHE=str(folder / "cache"))
    return Point(f"{megabytes} MB of text to the end of a run of one step", megabytes, seconds, memory)


def generate(folder: Path, inputs: int, model: Path) -> Point:
    """Measure the peak memory of a synthesis of ``inputs`` sentences by a model of two layers."""
    folder.mkdir()
    source = folder / "inputs.txt"
    source.write_text("".join(f"{texts.invented(number, 8)}\n" for number in range(inputs)), encoding="utf-8")
    keys = ["recipe=dino_x2", f"generator={model}", f"input={source}", "per_label=1", "max_new_tokens=4"]
    seconds, memory = run("generate", *keys, f"output={folder / 'pairs'}", folder=folder)
    return Point(f"{inputs:,} input sentences of a synthesis", inputs, seconds, memory)


def lines(figure: str, points: list[Point]) -> Iterator[Line]:
    first = points[0]
    for point in points:
        growth = point.size / first.size
        yield Line(figure, point.case, "s", point.seconds, ratio=point.seconds / first.seconds / growth)
        yield Line(figure, point.case, "MiB", point.memory / 2**20, ratio=point.memory / first.memory)


def batch_sizes(options: argparse.Namespace, folder: Path) -> Iterator[list[Point]]:
    rows, minilm = write_rows(folder / "rows.csv", 3 * max(options.pairs), 40), materials.packaged_minilm()
    yield [step(folder, rows, minilm, f"{n} pairs of 32 tokens, MiniLM", n, n, 32) for n in options.pairs]


def text_lengths(options: argparse.Namespace, folder: Path) -> Iterator[list[Point]]:
    for name, backbone, lengths in (
        ("MiniLM", materials.packaged_minilm(), options.lengths),
        ("SmolLM2-135M", materials.smollm2(folder / "smollm2"), options.decoder_lengths),
    ):
        points = list[Point]()
        for n in lengths:
            count = options.tokens // n
            long = write_rows(folder / "long.csv", 3 * count, n)
            case = f"{options.tokens:,} tokens of anchors in texts of {n} tokens, {name}"
            points.append(step(folder, long, backbone, case, 1, count, n))
        yield points


def model_sizes(options: argparse.Namespace, folder: Path) -> Iterator[list[Point]]:
    models = {"MiniLM": materials.packaged_minilm(), "SmolLM2-135M": materials.smollm2(folder / "smollm2")}
    if options.mpnet:
        models["all-mpnet-base-v2"] = Path(options.mpnet)
    long = write_rows(folder / "long.csv", 48, 128)
    yield [
        step(folder, long, backbone, f"16 pairs of 128 tokens, {name}", WEIGHTS[name], 16, 128)
        for name, backbone in models.items()
    ]


def text_sizes(options: argparse.Namespace, folder: Path) -> Iterator[list[Point]]:
    yield [first_step(folder / f"text{n}", n) for n in options.megabytes]


def input_counts(options: argparse.Namespace, folder: Path) -> Iterator[list[Point]]:
    tiny = materials.tiny_decoder(folder / "tiny")
    yield [generate(folder / f"inputs{n}", n, tiny) for n in options.inputs]


FIGURES = {"S1": batch_sizes, "S2": text_lengths, "S3": model_sizes, "S4": text_sizes, "S5": input_counts}


def measure(options: argparse.Namespace, folder: Path) -> Iterator[Line]:
    for figure in options.figures:
        for points in FIGURES[figure](options, folder):
            yield from lines(figure, points)
