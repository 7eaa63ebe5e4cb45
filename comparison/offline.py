"""Runs that Weights & Biases recorded on this disk (``WANDB_MODE=offline``), read back without its server.

A ``.wandb`` file is seven bytes and then LevelDB's log: blocks of 32,768 bytes, records with a header of crc, length
and kind (1 whole, 2 first, 3 middle, 4 last part). The payload is W&B's protocol buffer.
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from comparison.collect import Row, Run
from contracts import RESULTS_VERSION, InputError, Results, Spent

BLOCK, HEAD, PREAMBLE = 32768, 7, 7
SCORE = re.compile(r"(?!train/|throughput/|time/|trainer/|comparison/)[^/]+/[^/]+/[^/]+")


def is_offline_run(path: Path) -> bool:
    return path.is_dir() and not (path / "results.json").exists() and any(path.glob("run-*.wandb"))


def read_offline_run(path: Path) -> Run:
    """Scores are the last of each name that was logged; there are no intervals and no test items.

    Raises:
        InputError: the file is damaged, or nothing was scored.
    """
    file = next(path.glob("run-*.wandb"))
    config, rows, scores = dict[str, Any](), list[Row](), dict[str, float]()
    for record in read_records(file):
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            config |= values_of((record.run.config if kind == "run" else record.config).update)
        elif kind == "history":
            row = values_of(record.history.item)
            numbers = {name: float(value) for name, value in row.items() if _is_number(value)}
            scores.update({name: value for name, value in numbers.items() if SCORE.fullmatch(name)})
            rows.append({"step": numbers.get("trainer/global_step", numbers.get("_step", 0.0)), **numbers})
    if not scores:
        raise InputError(f"{file}: nothing was scored in this W&B run. Name the output folder of the run instead.")
    target = str(config.get("model", {}).get("_target_", "")) if isinstance(config.get("model"), dict) else ""
    steps = int(max((row["step"] for row in rows), default=0))
    seconds = max((row.get("time/elapsed_s", 0.0) for row in rows), default=0.0)
    results = Results(
        version=RESULTS_VERSION,
        objective=target.rpartition(".")[2].lower(),
        backbone=str(config.get("backbone", "")),
        recipe=config,
        scores=scores,
        intervals={},
        best_step=steps,
        spent=Spent(steps=steps, examples=0, real_tokens=0, padded_tokens=0, wall_seconds=seconds, peak_memory_bytes=0),
        seeds=[int(config.get("seed", 0))],
        versions={},
        device="",
        processes=1,
        git_commit=None,
        data=[],
        overlap={},
    )
    return Run(path, results, rows, None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def values_of(items: Iterable[Any]) -> dict[str, Any]:
    """Those of a record, by their names."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def read_records(file: Path) -> Iterator[Any]:
    """In the order in which they were written.

    Raises:
        InputError: one of them is damaged.
    """
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    record_of: Any = wandb_internal_pb2

    content = file.read_bytes()
    place, held = PREAMBLE, b""
    while place < len(content):
        left = BLOCK - place % BLOCK
        if left < HEAD:
            place += left
            continue
        if place + HEAD > len(content):
            return  # a kill cut the last record
        _, length, kind = struct.unpack("<IHB", content[place : place + HEAD])
        if kind == 0 and length == 0:
            return
        part = content[place + HEAD : place + HEAD + length]
        held = part if kind in (1, 2) else held + part
        place += HEAD + length
        if kind in (1, 4):
            record = record_of.Record()
            try:
                record.ParseFromString(held)
            except DecodeError as error:
                raise InputError(f"{file}: wanted the records of a W&B run, got: {error}. Leave it out.") from error
            yield record
