"""Write a dataset shard by shard: create tasks for workers, write their results, and complete the manifest."""

import contextlib
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from contrastive_encoders.core import InputError
from contrastive_encoders.core.runtime.worker_loop import Work
from contrastive_encoders.core.runtime.worker_pool import InProcess, WorkerCrashError, WorkerPool
from contrastive_encoders.core.runtime.worker_tasks import TaskFailedError, WorkItem
from contrastive_encoders.synthesis.shards.progress import StageProgress, WorkerProgress
from contrastive_encoders.synthesis.shards.store import (
    LabelCounts,
    RejectedText,
    ShardStore,
    SynthesisError,
    read_manifest,
    to_json_lines,
)

log = logging.getLogger(__name__)


class ShardInputs(NamedTuple):
    """Payload of a task: the inputs of a shard."""

    first: int  # position of the first input in the dataset
    inputs: list[Any]


class ShardFacts(TypedDict):
    """Counts and rejected texts of a shard, as stored in the record of the shard."""

    tokens: int  # drawn
    labels: dict[str, LabelCounts]
    left_out: list[RejectedText]  # some of the texts that were not accepted


class WrittenShard(NamedTuple):
    """Result of a task: the JSON lines of a shard, with its counts and rejected texts."""

    lines: bytes  # JSON
    about: ShardFacts


def judge_shards(
    tasks: Iterable[WorkItem],
    inputs_per_batch: int,
    judge: Callable[[int, list[Any]], Iterable[Mapping[str, Any]]],
    count: Callable[[list[Any]], dict[str, LabelCounts]],
) -> Iterator[tuple[int | None, WrittenShard | WorkerProgress]]:
    """Yield the shard of each task, and a progress report after each batch.

    A shard is processed at once, so nothing is pending between two shards. ``judge`` returns the rows of a batch of
    inputs, given the position of the first input and the inputs; ``count`` counts the rows of a shard by label.
    """
    for task in tasks:
        payload: ShardInputs = task.payload
        rows = list[Mapping[str, Any]]()
        for begin in range(0, len(payload.inputs), inputs_per_batch):
            some = payload.inputs[begin : begin + inputs_per_batch]
            rows += judge(payload.first + begin, some)
            yield None, WorkerProgress(len(some))
        yield task.number, WrittenShard(to_json_lines(rows), ShardFacts(tokens=0, labels=count(rows), left_out=[]))


@dataclass
class DataSet:
    """A dataset to be written into one folder, shard by shard."""

    folder: Path
    title: str
    number: int  # number of inputs
    shard_size: int
    identity: Mapping[str, Any]  # everything that determines the texts; a different identity means a different dataset
    about: Mapping[str, Any]  # further entries of the manifest
    inputs: Iterable[Any]  # in order; read once
    work: Work  # yields a `WrittenShard` per `ShardInputs`, and sometimes a `WorkerProgress`
    prompts: int = 1  # per input

    def describe(self, manifest: dict[str, Any]) -> None:
        """Write the report and the dataset card. The default writes nothing, for a dataset that is only an input of
        another.
        """

    def log_result(self, counts: Mapping[str, Any]) -> None:
        """Log how many texts were accepted, given the counts of the complete manifest. The default logs nothing."""

    @property
    def shards(self) -> int:
        return -(-self.number // self.shard_size)

    @property
    def store(self) -> ShardStore:
        return ShardStore(self.folder)

    def missing(self) -> list[int]:
        """Return the indices of the shards that are missing or damaged."""
        store = self.store
        return [number for number in range(self.shards) if not store.is_done(number)]

    def tasks(self, missing: Iterable[int]) -> Iterator[WorkItem]:
        """Yield a task for each shard in ``missing``, in order."""
        wanted, inputs = set(missing), iter(self.inputs)
        for number in range(max(wanted, default=-1) + 1):
            some = list(islice(inputs, self.shard_size))
            if number in wanted:
                yield WorkItem(number, ShardInputs(number * self.shard_size, some))

    def inputs_of(self, number: int) -> int:
        """Return the number of inputs in a shard."""
        return min(self.shard_size, self.number - number * self.shard_size)

    def manifest(self, *, complete: bool) -> dict[str, Any]:
        return self.store.manifest({"identity": self.identity, **self.about}, self.shards, complete=complete)

    def is_complete(self) -> bool:
        """Return whether every shard exists and the manifest is marked complete."""
        try:
            return bool(read_manifest(self.folder)["complete"]) and not self.missing()
        except InputError:
            return False


def write_data_set(data_set: DataSet, pool: InProcess | WorkerPool, *, quiet: bool) -> None:
    """Write the missing shards, then the report, the dataset card, and the manifest.

    If the process is interrupted, complete shards are kept, and the manifest is marked incomplete.

    Raises:
        SynthesisError: The workers failed on some shards in every attempt; all other shards are written.
    """
    try:
        _write_missing(data_set, pool, quiet=quiet)
        if not data_set.is_complete():
            data_set.log_result(_write_manifest(data_set, complete=True)["counts"])
    except (KeyboardInterrupt, SystemExit):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _write_manifest(data_set, complete=False)
        log.info("%s: interrupted. Run the same command again to resume.", data_set.folder)
        raise
    except (TaskFailedError, WorkerCrashError) as error:
        _write_manifest(data_set, complete=False)
        what = f"shards {', '.join(map(str, error.numbers))}" if isinstance(error, TaskFailedError) else str(error)
        raise SynthesisError(
            f"{data_set.folder}: {what}: the worker processes exited in every attempt, usually because of too little "
            "memory. Lower decode_batch_size or kv_cache_tokens, then run the same command again to resume."
        ) from error


def _write_missing(data_set: DataSet, pool: InProcess | WorkerPool, *, quiet: bool) -> None:
    missing, store = data_set.missing(), data_set.store
    if not missing:
        return
    prompts = data_set.prompts * sum(map(data_set.inputs_of, missing))
    results = pool.run(data_set.work, data_set.tasks(missing), len(missing))
    with contextlib.closing(results), StageProgress(data_set.title, prompts, quiet=quiet) as progress:
        for place, (number, result) in enumerate(results):
            if place == 0:  # everything is loaded; if killed from now on, the folder declares its content
                store.write_manifest(data_set.manifest(complete=False))
            if isinstance(result, WorkerProgress):
                progress.add(result)
            elif number is not None:
                first, inputs = number * data_set.shard_size, data_set.inputs_of(number)
                store.write(number, result.lines, {"first": first, "inputs": inputs, **result.about})


def _write_manifest(data_set: DataSet, *, complete: bool) -> dict[str, Any]:
    """Write the report and the card, then the manifest, and return the manifest. If it is marked complete, all other
    files exist.
    """
    manifest = data_set.manifest(complete=complete)
    data_set.describe(manifest)
    data_set.store.write_manifest(manifest)
    return manifest
