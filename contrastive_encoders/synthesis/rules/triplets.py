"""Select triplets from scored rows, in parallel and without a model."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.child_processes import cores
from contrastive_encoders.core.runtime.worker_pool import open_pool
from contrastive_encoders.core.runtime.worker_tasks import WorkItem
from contrastive_encoders.synthesis.rules.triplet_rules import RuleCounts, Rules, Triplet, judge, rejected_texts
from contrastive_encoders.synthesis.shards.store import (
    RejectedText,
    ShardStore,
    read_finished,
    sample_rejected,
    shard_name,
    to_json_lines,
)

SCORED = "scored"  # source of the triplets, within their folder
LABEL = "triplet"
MIN_SHARDS_PER_PROCESS = 8  # number of shards for which starting a process is not worthwhile


def find_scored(folder: Path) -> Path:
    """Return the folder of the scored dataset: ``folder`` or its subfolder "scored". Its shards are checked.

    Raises:
        InputError: There is no scored dataset, it is not finished, or shards are missing.
    """
    found = folder / SCORED if (folder / SCORED).is_dir() else folder
    manifest = read_finished(found, SCORED, "recipe=gense")
    store, shards = ShardStore(found), range(manifest["shards_planned"])
    if lost := [number for number in shards if not store.is_done(number)]:
        raise InputError(
            key="input",
            value=f"{len(shards) - len(lost)} of {len(shards)} shards",
            expected=f"all shards; the first missing or damaged shard is {shard_name(lost[0])}",
            location=str(found),
            hint="Rerun the command that wrote the shards to restore them.",
        )
    return found


def filter_identity(scored: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """Return the settings that identify the filtered triplets: the rules, and the settings that identify the scored
    rows.
    """
    return {"kind": "triplets", "rules": asdict(rules), SCORED: dict(scored)}


def filter_shards(source: Path, folder: Path, rules: Rules, shards: Sequence[int], workers: int | None = None) -> None:
    """Select and write the given shards of triplets with ``workers`` processes. ``None`` means up to one per core."""
    if workers is None:
        workers = max(1, min(cores(), len(shards) // MIN_SHARDS_PER_PROCESS))
    store = ShardStore(folder)
    with open_pool(_load_nothing, workers) as pool:
        for number, (lines, about) in pool.run(Filter(source, rules), map(WorkItem, shards), len(shards)):
            assert number is not None, "nothing is reported in between"
            store.write(number, lines, about, sync=False)


def _load_nothing() -> None:
    """Start function of a worker that loads nothing, because no model is needed."""


@dataclass(frozen=True)
class Filter:
    """Task of a worker: select triplets from a shard of scored rows, and return the JSON lines and the record of the
    new shard.
    """

    source: Path
    rules: Rules

    def __call__(self, _: None, tasks: Iterator[WorkItem]) -> Iterator[tuple[int, tuple[bytes, dict[str, Any]]]]:
        for task in tasks:
            tally, refused = RuleCounts(), list[RejectedText]()
            lines = to_json_lines(_triplets(self.source / shard_name(task.number), self.rules, tally, refused))
            record = ShardStore(self.source).record(task.number)
            counts = {"samples": tally.rows, "accepted": tally.accepted, "rejected": dict(tally.rejected)}
            about = {
                "first": record["first"] if record else 0,
                "inputs": tally.rows,
                "tokens": 0,
                "labels": {LABEL: counts},
                "broken": dict(tally.broken),
                "sureties": tally.sureties,
                "answers": tally.answers,
                "left_out": sample_rejected(refused),
            }
            yield task.number, (lines, about)


def _triplets(path: Path, rules: Rules, tally: RuleCounts, refused: list[RejectedText]) -> Iterator[Triplet]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            verdict = judge(json.loads(line), rules)
            tally.add(verdict)
            if not verdict.broken:
                yield verdict.triplet
            else:
                refused.extend(rejected_texts(verdict))


def filter_manifest(folder: Path, header: Mapping[str, Any], shards: int, *, complete: bool) -> dict[str, Any]:
    """Return the manifest of the triplets.

    The manifest includes the number of rows that each enabled rule alone would reject, even if it is zero.
    """
    store = ShardStore(folder)
    broken, sureties = Counter[str](), Counter[int]()
    answers: dict[str, list[int]] = {}
    for record in store.records(shards):
        own: Any = record
        broken.update(own["broken"])
        sureties.update(dict(enumerate(own["sureties"])))
        for direction, found in own.get("answers", {}).items():
            answers[direction] = [a + b for a, b in zip(found, answers.get(direction, [0] * len(found)), strict=True)]
    curve = {
        f"{threshold / 100:.2f}": sum(count for place, count in sureties.items() if place >= threshold)
        for threshold in (50, 60, 70, 75, 80, 85, 90, 95, 96, 97, 98, 99, 100)
    }
    manifest = store.manifest(header, shards, complete=complete)
    on = Rules(**header["identity"]["rules"]).switched_on()
    counted = dict(broken.most_common()) | {reason: broken[reason] for reason in on}
    return {**manifest, "broken": counted, "accepted_at_threshold": curve, "answers": answers}
