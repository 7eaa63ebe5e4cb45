"""One data set from start to end: which shards are missing, writing them, and closing the manifest.

Process r of n takes the shards r, r + n, r + 2n, ...; they meet on disk alone. Whoever finds the last shard
there closes.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from filelock import FileLock

from contracts import InputError
from synthesis.decoding import Decoding, Prompt, Sampled, Statistics, decode
from synthesis.dino import Job, Plan, Shard, Unit
from synthesis.filters import NEAR_DUPLICATE, NearDuplicates
from synthesis.generator import Generator
from synthesis.spec import TaskSpec
from synthesis.store import ABOUT, Entry, ShardStore, read_manifest, read_shard, shard_name

log = logging.getLogger(__name__)

Decode = Callable[[Generator, Iterator[Prompt | None], Decoding, Statistics], Iterator[Sampled]]
Watch = Callable[[Sequence[int]], None]
PATIENCE = 0.5  # seconds between looks whether the other processes have finished


class Ranks(NamedTuple):
    """This process among those that write the same data set."""

    rank: int = 0
    world: int = 1


class Progress(Protocol):
    """Told about every shard and every answer."""

    def begin(self, stage: "Stage", groups: int) -> None: ...

    def took(self, sampled: Sampled, job: Job) -> None: ...

    def wrote(self, shard: Shard) -> None: ...

    def end(self) -> None: ...


@dataclass
class Stage:
    """What is to be written into one folder."""

    folder: Path
    spec: TaskSpec
    plan: Plan
    how: Decoding
    units: Callable[[], Iterator[Unit]]
    number: int  # of units
    shard_size: int
    identity: Mapping[str, Any]  # what decides the texts; another one is another data set
    about: Mapping[str, Any] = field(default_factory=dict)  # what the manifest says besides

    @property
    def shards(self) -> int:
        return -(-self.number // self.shard_size)

    @property
    def store(self) -> ShardStore:
        return ShardStore(self.folder)

    def missing(self, ranks: Ranks = Ranks()) -> list[int]:  # noqa: B008  a tuple
        """Shards of this process that are not there."""
        store = self.store
        return [number for number in range(ranks.rank, self.shards, ranks.world) if not store.is_done(number)]

    def manifest(self, *, complete: bool) -> dict[str, Any]:
        return self.store.manifest({"identity": self.identity, **self.about}, self.shards, complete=complete)

    def is_complete(self) -> bool:
        """Whether it is closed: every shard is there, and the manifest says so."""
        try:
            return bool(read_manifest(self.folder)["complete"]) and not self.missing()
        except InputError:
            return False

    def lock(self, timeout: float = -1) -> FileLock:
        """Of what lies beside the shards. ``timeout`` in seconds, -1: none."""
        (self.folder / ABOUT).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / ABOUT / "lock", timeout=timeout)


def run_stage(
    stage: Stage,
    generator: Generator,
    ranks: Ranks,
    progress: Progress,
    decoder: Decode = decode,
) -> Statistics:
    """Write what is missing. With several processes, only this one's part; see `close_stage`."""
    statistics = Statistics()
    missing = stage.missing(ranks)
    if not missing:
        return statistics
    stage.store.write_manifest(stage.manifest(complete=False))  # a folder that a kill leaves says what it is
    job = Job(stage.spec, stage.plan, stage.units(), stage.shard_size, missing)
    sizes = [min(stage.shard_size, stage.number - number * stage.shard_size) for number in missing]
    progress.begin(stage, sum(sizes) * (len(stage.spec.labels) if stage.spec.takes_input else 1))
    try:
        for sampled in decoder(generator, job.prompts(), stage.how, statistics):
            for shard in job.take(sampled):
                about = {"first": shard.first, "inputs": shard.units, "tokens": shard.tokens, "labels": shard.counts()}
                stage.store.write(shard.number, shard.entries(), about)
                progress.wrote(shard)
            progress.took(sampled, job)
    finally:
        progress.end()
    return statistics


def close_stage(
    stage: Stage,
    finish: Callable[[Stage], None],
    watch: Watch | None = None,
) -> None:
    """``finish`` where all shards are there and it is not done yet; it completes the manifest.

    Of several processes the one that finds the last shard written closes. With ``watch`` the others wait until it has;
    it is told what is missing, and raises where that will not come.
    """
    said = time.monotonic()
    while True:
        with stage.lock():
            if not stage.missing():
                if not stage.is_complete():
                    if stage.plan.filters.near_duplicate_x1 is not None and not stage.spec.takes_input:
                        sieve(stage.store, stage.shards, stage.plan.filters.near_duplicate_x1)
                    finish(stage)
                return
        if watch is None:
            return
        missing = stage.missing()
        watch(missing)
        if time.monotonic() - said > 60:
            log.info("%s: waiting for %d shards of other processes", stage.folder, len(missing))
            said = time.monotonic()
        time.sleep(PATIENCE)


def sieve(store: ShardStore, shards: int, threshold: float) -> None:
    """Take near-duplicates of earlier first sentences out of the shards. Doing it again changes nothing."""
    seen = NearDuplicates(threshold)
    for number in range(shards):
        kept: list[Entry] = []
        dropped: dict[str, int] = {}
        for entry in read_shard(store.folder / shard_name(number)):
            if seen.is_new(entry["text_a"]):
                kept.append(entry)
            else:
                dropped[entry["label"]] = dropped.get(entry["label"], 0) + 1
        record = store.record(number)
        if record is None or not dropped:
            continue
        for label, count in dropped.items():
            counts = record["labels"][label]
            counts["accepted"] -= count
            counts["rejected"][NEAR_DUPLICATE] = counts["rejected"].get(NEAR_DUPLICATE, 0) + count
        about = {key: record[key] for key in ("first", "inputs", "tokens", "labels")}
        store.write(number, kept, about)
