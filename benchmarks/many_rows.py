"""P12: the start of an epoch over 61 million triplets, written as ids: seconds, and anonymous memory of a rank.

    python -m benchmarks.many_rows [--quick] [--rows 61000000]

Some 3.3 GB are written into a temporary folder, which is removed at the end. The same is done over a thousand rows:
what is the same there is not the price of the rows.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.materials import data_module
from benchmarks.sides import Line, arguments, in_a_process, report
from benchmarks.texts import ROOT
from contrastive_encoders.datamodules.row_datamodules import Triplets
from contrastive_encoders.datamodules.store.token_store import StoreWriter
from contrastive_encoders.encoders.loading.tiny import write_tiny_masked_lm
from contrastive_encoders.io.manifest import read_record, write_record

FEW = 1_000
AT_ONCE = 1_000_000  # rows written at a time
SHORTEST, LONGEST = 3, 7  # tokens of a text
BATCH = 1_024
WANTED_SECONDS, WANTED_MEMORY = "<= 5 s more", "<= 1000 MB"
STEPS = 4


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, help="61 million, or 20,000 with --quick")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure)))
        return
    rows = options.rows if options.rows is not None else 20_000 if options.quick else 61_000_000
    with tempfile.TemporaryDirectory(prefix="many-rows-") as name:
        folder = Path(name)
        write_few(folder / "few")
        began = time.perf_counter()
        write_many(folder / "few", folder / "many", rows)
        size = sum(path.stat().st_size for path in (folder / "many").rglob("*") if path.is_file())
        print(f"{rows:,} rows written as ids, {size / 1e9:.2f} GB, in {time.perf_counter() - began:.0f} s")
        report(f"{rows:,} triplets beside {FEW:,}", [*in_the_data(folder), *in_a_run(folder)], options.output)


def write_few(folder: Path) -> None:
    """Write triplets into a file, a backbone whose vocabulary is their words, and their token store."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    words = ["".join(chr(97 + letter) for letter in rng.integers(0, 26, 5)) for _ in range(3_000)]
    with (folder / "triplets.jsonl").open("w") as file:
        for _ in range(FEW):
            texts = [" ".join(rng.choice(words, 5)) for _ in range(3)]
            file.write(json.dumps(dict(zip(("anchor", "positive", "negative"), texts, strict=True))) + "\n")
    write_tiny_masked_lm(
        folder / "backbone",
        iter(words),
        seed=1,
        vocab_size=2_000,
        hidden_size=64,
        layers=1,
        heads=2,
        intermediate_size=128,
        max_length=64,
        dropout=0.1,
        lowercase=True,
    )
    triplets(folder).prepare_data()


def triplets(folder: Path) -> Triplets:
    keys = {"path": folder / "triplets.jsonl", "tokenizer": folder / "backbone", "cache_dir": folder / "cache"}
    return data_module("triplets", batch_size=BATCH if "many" in folder.name else 64, **keys)


def write_many(few: Path, folder: Path, rows: int) -> None:
    """Copy the data, with so many rows in the store; the file of texts, by which a store is found, stays."""
    shutil.copytree(few, folder, ignore=shutil.ignore_patterns("cache"))
    triplets(folder).prepare_data()
    (store,) = (path for path in (folder / "cache").glob("tokens-*") if path.is_dir())
    meta = read_record(store / "meta.json")
    rng = np.random.default_rng(2)
    with StoreWriter(store, 3, np.dtype(meta["dtype"]), labelled=False) as writer:
        for first in range(0, rows, AT_ONCE):
            lengths = rng.integers(SHORTEST, LONGEST + 1, 3 * min(AT_ONCE, rows - first))
            writer.write(rng.integers(300, 2_000, int(lengths.sum()), dtype=np.uint16), lengths)
    write_record(store / "meta.json", meta | writer.totals())


def measured(folder: Path) -> dict[str, Any]:
    """Measure the data module: seconds to its first batch, after a resume and of a batch, and anonymous bytes."""
    before, began = anonymous(os.getpid()), time.perf_counter()
    module = triplets(folder)
    module.prepare_data()
    stream = module.train_dataloader()
    next(iter(stream))
    first = time.perf_counter() - began
    found: dict[str, Any] = {"rows": module.num_examples, "first_batch_s": first}
    began = time.perf_counter()
    other = triplets(folder).train_dataloader()
    state = stream.state_dict() | {"epoch": 3, "consumed": len(stream) // 2}
    other.load_state_dict(state)
    batches = iter(other)
    next(batches)
    found["resumed_in_the_middle_s"] = time.perf_counter() - began
    began = time.perf_counter()
    taken = sum(1 for _, _ in zip(range(100), batches, strict=False))
    found["batch_ms"] = 1e3 * (time.perf_counter() - began) / max(taken, 1)
    found["batch"] = module.batch_size
    found["anonymous_bytes"] = anonymous(os.getpid()) - before
    return found


def in_the_data(folder: Path) -> list[Line]:
    """Measure the data module alone, on many rows and on few."""
    few, many = (
        json.loads(" ".join(in_a_process("benchmarks.many_rows", "--measure", folder / name)))
        for name in ("few", "many")
    )
    about = f"data module, {many['rows']:,} rows"
    return [
        Line(
            "P12",
            f"{about}: first batch of {many['batch']}, of {few['batch']}",
            "s",
            many["first_batch_s"],
            few["first_batch_s"],
            None,
            "",
        ),
        Line(
            "P12",
            f"{about}: resumed in the middle of an epoch",
            "s",
            many["resumed_in_the_middle_s"],
            few["resumed_in_the_middle_s"],
            None,
            "",
        ),
        Line("P12", f"{about}: a batch of {many['batch']}", "ms", many["batch_ms"], None, None, ""),
        Line("P12", f"{about}: anonymous memory", "MB", many["anonymous_bytes"] / 1e6, None, None, ""),
    ]


def in_a_run(folder: Path) -> list[Line]:
    """Measure ``contrastive-encoders train``, on many rows and on few."""
    (few, few_bytes), (many, many_bytes) = (trained(folder / name, folder / f"run-{name}") for name in ("few", "many"))
    return [
        Line("P12", "train, start to step 2", "s", many[0], few[0], None, WANTED_SECONDS),
        Line("P12", "train, killed there and continued to the end", "s", many[1], few[1], None, WANTED_SECONDS),
        Line("P12", "train, anonymous memory", "MB", many_bytes / 1e6, few_bytes / 1e6, None, WANTED_MEMORY),
    ]


def trained(data: Path, folder: Path) -> tuple[tuple[float, float], int]:
    """Train, kill the run at its second step, and continue it. Return the seconds of each command, and the largest
    anonymous memory in bytes.
    """
    words = [
        "model=simcse",
        "data=triplets",
        f"data.path={data}/triplets.jsonl",
        f"data.cache_dir={data}/cache",
        f"backbone={data}/backbone",
        f"max_steps={STEPS}",
        "batch_size=64",
        "checkpoint.every_n_steps=1",
        "log_every_n_steps=1",
        "quiet=true",
        "trainer.accelerator=cpu",
        f"output_dir={folder}",
    ]
    seconds, most = list[float](), 0
    for kill in (True, False):
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, str(ROOT / "train.py"), *words], cwd=ROOT)
        while process.poll() is None:
            most = max(most, anonymous(process.pid))
            if kill and steps_done(folder) >= 2:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.02)
        seconds.append(time.perf_counter() - began)
        if process.wait() not in (0, -signal.SIGKILL):
            raise SystemExit(f"train ended with status {process.returncode}")
    return (seconds[0], seconds[1]), most


def steps_done(folder: Path) -> int:
    path = folder / "metrics.csv"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0


def anonymous(pid: int) -> int:
    """Bytes of memory that no file stands behind; 0 where the process has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


if __name__ == "__main__":
    main()
