"""P1 for a T5, P6 for a T5, and what the first decoder state costs over the encoder alone.

    python -m benchmarks.t5_training [--quick] [--parts decoder pairs memory] [--clock wall|cpu]

A T5 of small's size (6 layers of 512 in each half) with random weights and a vocabulary of the texts; NLI triplets of
SHARED_DATA, or invented ones. ``decoder``: vectors, and a training step (encode, loss, backward), by first_decoder
against the mean of the encoder's states; wanted: at most 1.25 times the time. ``pairs``: triplets in batches of 64 with
all hard negatives, as train.py runs model=gense pooling=mean, against sentence-transformers' trainer with
MultipleNegativesRankingLoss, which cannot read the decoder; AdamW on both sides; before the race both train without
dropout and must take the weights the same way. Wanted: twice the pairs/s. ``memory``: the peak of a process that trains
on 1,024 triplets in chunks against one with 64, plain, by first_decoder; wanted: at most 1.2 times.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import materials, texts
from benchmarks.declutr_step import Marks, trainer_of_a_run
from benchmarks.materials import objective
from benchmarks.pair_training import BATCH, MAX_LENGTH, OPTIMIZER, TEMPERATURE, Work, theirs
from benchmarks.sides import CLOCKS, Line, alternate, arguments, median_ratio, report, resident
from contracts import TripletBatch
from datamodules.text_rows import Triplets
from encoders.kernels import chunks
from encoders.loading.tiny import write_tiny_t5
from encoders.objectives.gense import GenSE

SMALL = {"hidden_size": 512, "layers": 6, "heads": 8, "intermediate_size": 2048, "vocab_size": 32_000}
QUICK = {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 32, "vocab_size": 400}
PROMPT = " Question: what can we draw from the above sentence?"
COLUMNS = ("premise", "entailment", "contradiction")
CHECKED_STEPS = 3
WITHOUT_LIMIT = 10**9
# Distance of the ends over the length of the way; a weight without gradient goes where rounding sends it
SAME_WAY = 0.05
PARTS = ("decoder", "pairs", "memory")


def triplets(count: int) -> Iterator[dict[str, str]]:
    shared = texts.shared_data()
    if shared is not None:
        with gzip.open(shared / "train" / "triplets.jsonl.gz", "rt", encoding="utf-8") as lines:
            for row in islice(map(json.loads, lines), count):
                yield {column: row[column] for column in COLUMNS}  # without "split", by which rows would be left out
        return
    for number in range(count):
        words = random.Random(number).randint
        yield {name: texts.invented(3 * number + i, words(4, 20)) for i, name in enumerate(COLUMNS)}


def prepare(folder: Path, sizes: dict[str, int], count: int) -> tuple[Path, Path, Triplets]:
    """A backbone, the same without dropout, and the data module with its store built."""
    path = folder / "triplets.jsonl"
    rows = list(triplets(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, dropout in (("backbone", 0.1), ("still", 0.0)):
        spoken = (row[column] for row in rows for column in COLUMNS)
        write_tiny_t5(folder / name, spoken, seed=1, dropout=dropout, max_length=512, lowercase=False, **sizes)
    return folder / "backbone", folder / "still", data_of(path, folder / "backbone")


def data_of(path: Path, backbone: Path) -> Triplets:
    keys = {"path": path, "tokenizer": backbone, "max_length": MAX_LENGTH, "cache_dir": path.parent / "cache"}
    data: Triplets = materials.data_module("triplets", batch_size=BATCH["contrastive"], **keys)
    data.prepare_data()
    data.setup()
    return data


def gense(backbone: Path, pooling: str, **options: Any) -> GenSE:
    common: dict[str, Any] = {"max_length": MAX_LENGTH, "temperature": TEMPERATURE, "mask_duplicates": False}
    return objective("gense", backbone, pooling=pooling, **{**common, **options})


def batch_of(data: Triplets, count: int) -> TripletBatch:
    return data.make_batch(data.store, data.subset[torch.arange(count).numpy()])


def decoder_cost(backbone: Path, data: Triplets, rounds: int, clock: Callable[[], float], count: int) -> list[Line]:
    models = {name: gense(backbone, name, prompt=PROMPT) for name in ("first_decoder", "mean")}
    batch = batch_of(data, BATCH["contrastive"])
    spoken = [row["premise"] for row in triplets(count)]

    def timed(work: Callable[[], Any]) -> float:
        start = clock()
        work()
        return clock() - start

    def step(model: GenSE) -> None:
        model.zero_grad()
        model.training_step(batch, 0)["loss"].backward()

    lines = []
    for case, work in (
        (f"vectors of {count} texts", lambda m: m.encoder.embed(spoken)),
        ("a step of 64 triplets", step),
    ):
        for model in models.values():
            work(model)
        found = alternate({n: lambda m=m, w=work: timed(lambda: w(m)) for n, m in models.items()}, rounds)
        own, other = (statistics.median(found[name]) for name in models)
        ratio = median_ratio(found["first_decoder"], found["mean"])
        lines.append(Line("T5", f"{case}, first_decoder / mean of the encoder", "s", own, other, ratio, "<= 1.25x"))
    return lines


def ours(work: Work) -> tuple[float, dict[str, Tensor]]:
    """Seconds of the timed steps, and the weights they led to."""
    marks = Marks(work.clock)
    options = {"optimizer": "adamw", "bias_correction": True, "log_every_n_steps": 50, **OPTIMIZER}
    model = gense(work.backbone, "mean", **options)
    trainer = trainer_of_a_run(work.folder, work.steps + 1, work.precision == "bf16", marks)
    trainer.fit(model, datamodule=work.data)
    return marks.times[-1] - marks.times[0], model.encoder.trunk.state_dict()


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return sum(float((one[name] - weight).double().square().sum()) for name, weight in other.items()) ** 0.5


def race(work: Work, still: Path, rounds: int, precisions: list[str]) -> list[Line]:
    quiet = work._replace(backbone=still, steps=CHECKED_STEPS - 1)
    start = {name: weight.clone() for name, weight in gense(still, "mean").encoder.trunk.state_dict().items()}
    one, other = theirs(quiet)[1], ours(quiet)[1]
    apart = distance(one, other) / distance(other, start)
    if apart > SAME_WAY:
        raise SystemExit(f"after {CHECKED_STEPS} steps the weights are {apart:.1e} of their way apart; no race.")
    lines, batch = [], BATCH["contrastive"]
    for precision in precisions:
        at = work._replace(precision=precision)
        seconds = alternate({"ours": lambda at=at: ours(at)[0], "theirs": lambda at=at: theirs(at)[0]}, rounds)
        own, others = (work.steps * batch / statistics.median(values) for values in seconds.values())
        ratio = median_ratio(seconds["theirs"], seconds["ours"])
        case = f"T5 encoder, {batch} triplets, {precision}, apart {apart:.0e} of the way"
        lines.append(Line("P1", case, "triplets/s", own, others, ratio, ">= 2x"))
    return lines


def grow(backbone: Path, path: Path, count: int, budget: int) -> None:
    """In a process of its own: two steps, and the peak. Without a budget all texts are padded to the longest."""
    if not budget:
        chunks.CHUNK_COST_TOKENS["cpu"] = WITHOUT_LIMIT  # no padding is worth another chunk
    model = gense(backbone, "first_decoder", prompt=PROMPT, token_budget=budget or WITHOUT_LIMIT)
    batch = batch_of(data_of(path, backbone), count)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    for _ in range(2):
        optimizer.zero_grad()
        model.training_step(batch, 0)["loss"].backward()
        optimizer.step()
    sys.stdout.write(f"{resident('VmHWM')}\n")


def memory(backbone: Path, data: Triplets, sizes: tuple[int, int]) -> Line:
    small, large = sizes
    model = gense(backbone, "first_decoder", prompt=PROMPT)
    batch = batch_of(data, small)
    lengths = [model.encoder.appended(view).lengths for view in (batch.anchors, batch.positives, batch.negatives)]
    budget = 3 * small * int(max(one.max() for one in lengths))

    def peak(count: int, budget: int) -> int:
        words = ["--grow", str(backbone), str(data.records.paths[0]), str(count), str(budget)]
        child = [sys.executable, "-m", "benchmarks.t5_training", *words]
        return int(subprocess.run(child, check=True, capture_output=True, text=True, cwd=texts.ROOT).stdout.split()[-1])

    own, other = peak(large, budget), peak(small, 0)
    case = f"peak of {large} triplets in chunks of {budget} tokens / {small} at once, first_decoder"
    return Line("P6", case, "MiB", own / 2**20, other / 2**20, own / other, "<= 1.2x")


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a round of pairs")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--grow", nargs=4, metavar=("BACKBONE", "FILE", "TRIPLETS", "BUDGET"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 1, 2
    return options


def main() -> None:
    options = parse()
    materials.hush()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if options.grow:
        grow(*map(Path, options.grow[:2]), *map(int, options.grow[2:]))
        return
    clock, title = CLOCKS[options.clock], f"T5: {options.clock} time"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sizes = QUICK if options.quick else SMALL
        backbone, still, data = prepare(folder, sizes, 512 if options.quick else 8_192)
        if "decoder" in options.parts:
            lines = decoder_cost(backbone, data, options.rounds, clock, 64 if options.quick else 1024)
            report(title, lines, options.output)
        if "pairs" in options.parts:
            rows = map(json.loads, (folder / "triplets.jsonl").read_text(encoding="utf-8").splitlines())
            names = ("anchor", "positive", "negative")
            named = [dict(zip(names, (row[column] for column in COLUMNS), strict=True)) for row in rows]
            work = Work("contrastive", backbone, data, named, "fp32", options.steps, clock, folder / "run")
            report(title, race(work, still, options.rounds, options.precisions), options.output)
        if "memory" in options.parts:
            report(title, [memory(backbone, data, (8, 64) if options.quick else (64, 1024))], options.output)


if __name__ == "__main__":
    main()
