"""P12: the start of an epoch over 61 million triplets, written as ids: seconds, and anonymous memory of a rank.

``python -m benchmarks.many_rows`` writes some 3.3 GB into a temporary folder and removes it at the end. The same is
done over a thousand rows: what is the same there is not the price of the rows.
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
from benchmarks.sides import in_a_process
from benchmarks.texts import ROOT
from datamodules.store.token_store import StoreWriter
from datamodules.text_rows import Triplets
from encoders.loading.tiny import write_tiny_masked_lm
from storage.manifest import read_record, write_record

FEW = 1_000
AT_ONCE = 1_000_000  # rows written at a time
SHORTEST, LONGEST = 3, 7  # tokens of a text
BATCH = 1_024
WANTED_SECONDS, WANTED_BYTES = 5.0, 1_000_000_000
STEPS = 4


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=61_000_000)
    arguments.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.measure:
        print(json.dumps(measured(given.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="many-rows-") as name:
        folder = Path(name)
        write_few(folder / "few")
        began = time.perf_counter()
        write_many(folder / "few", folder / "many", given.rows)
        size = sum(path.stat().st_size for path in (folder / "many").rglob("*") if path.is_file())
        print(f"{given.rows:,} rows written as ids, {size / 1e9:.2f} GB, in {time.perf_counter() - began:.0f} s")
        report(folder)


def write_few(folder: Path) -> None:
    """Triplets in a file, a backbone of their words, and their store."""
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
    """Seconds and anonymous bytes of the real data module, from nothing to the first batch, and further on."""
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


def report(folder: Path) -> None:
    alone = {}
    for name in ("few", "many"):
        alone[name] = json.loads(" ".join(in_a_process("benchmarks.many_rows", "--measure", folder / name)))
        one = alone[name]
        print(
            f"{one['rows']:,} rows, data module: first batch after {one['first_batch_s']:.2f} s, resumed in the middle "
            f"of an epoch {one['resumed_in_the_middle_s']:.3f} s, {one['batch_ms']:.2f} ms a batch of {one['batch']}, "
            f"{one['anonymous_bytes'] / 1e6:.0f} MB anonymous"
        )
    runs = {name: trained(folder / name, folder / f"run-{name}") for name in ("few", "many")}
    for name, (seconds, bytes_) in runs.items():
        print(
            f"{alone[name]['rows']:,} rows, train.py: {seconds[0]:.1f} s from start to step 2, "
            f"{seconds[1]:.1f} s killed there and continued to the end, {bytes_ / 1e6:.0f} MB anonymous at most"
        )
    more = max(after - before for before, after in zip(runs["few"][0], runs["many"][0], strict=True))
    within = more <= WANTED_SECONDS and runs["many"][1] <= WANTED_BYTES
    print(
        f"wanted: {WANTED_SECONDS:.0f} s, {WANTED_BYTES / 1e6:.0f} MB; found: {more:+.1f} s, "
        f"{runs['many'][1] / 1e6:.0f} MB ({(runs['many'][1] - runs['few'][1]) / 1e6:+.0f} MB by the rows): "
        f"{'met' if within else 'MISSED'}"
    )


def trained(data: Path, folder: Path) -> tuple[tuple[float, float], int]:
    """Seconds to the second step, and of a second command that goes on there; the most anonymous bytes of both."""
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
            raise SystemExit(f"train.py ended with status {process.returncode}")
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
