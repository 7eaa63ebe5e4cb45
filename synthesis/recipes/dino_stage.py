"""A data set of texts by instructions: what `Stage` asks of its method, for DINO."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from synthesis.decoding.continuations import Sampled
from synthesis.decoding.generator import Generator
from synthesis.recipes.dino import Job, Plan, Unit
from synthesis.recipes.spec import TaskSpec
from synthesis.report.data_card import write_data_card
from synthesis.report.measures import as_json
from synthesis.report.report import write_report
from synthesis.rules.filters import NEAR_DUPLICATE, NearDuplicates
from synthesis.shards.stage import Stage
from synthesis.shards.store import Entry, ShardStore, read_shard, shard_name


@dataclass
class DinoStage(Stage):
    """First or second sentences."""

    spec: TaskSpec
    plan: Plan
    units: Callable[[], Iterator[Unit]]

    def begin(self, missing: list[int], generator: Generator) -> Job:
        return Job(self.spec, self.plan, self.units(), self.shard_size, missing)

    def groups(self, inputs: int) -> int:
        return inputs * (len(self.spec.labels) if self.spec.takes_input else 1)

    def passes(self, sampled: Sampled) -> bool:
        return not sampled.rejected and not self.plan.filters.rejected(sampled.text, sampled.closed, None)

    def sieve(self) -> None:
        """Take near-duplicates of earlier first sentences out, where that is asked for."""
        if self.plan.filters.near_duplicate_x1 is not None and not self.spec.takes_input:
            sieve(self.store, self.shards, self.plan.filters.near_duplicate_x1)

    def describe(self, manifest: dict[str, Any]) -> dict[str, Any]:
        measured = write_report(self.folder, manifest)
        write_data_card(self.folder, manifest)
        return {"measures": as_json(measured)}


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
