"""One stage of a synthesis: find missing shards, write them, close the manifest.

Process r of n takes the shards r, r + n, r + 2n, ...; they meet on disk alone. Whoever finds the last shard
there closes.
"""

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import FileLock, Timeout

from cli.process_group import Ranks
from contracts import InputError
from synthesis.decoding.continuations import Continuation, Decoding, Prompt, Statistics
from synthesis.decoding.loop import decode
from synthesis.shards.store import RECORDS_FOLDER, LabelCounts, LeftOut, ShardStore, read_manifest, some_left_out

log = logging.getLogger(__name__)

Decoder = Callable[[Any, Iterator[Prompt | None], Decoding, Statistics], Iterator[Continuation]]
WaitCallback = Callable[[Path, Sequence[int]], None]
AnyDataSet = TypeVar("AnyDataSet", bound="DataSet")
SECONDS_BETWEEN_LOOKS = 0.5  # seconds between looks whether the other processes have finished


class TextGenerator(Protocol):
    """A model that writes: in this process, or behind a server."""

    @property
    def name(self) -> str: ...

    @property
    def context(self) -> int:
        """Tokens, prompt and continuation together."""
        ...


class FinishedShard(Protocol):
    """A part of the data set that is done."""

    number: int
    first: int  # of its inputs
    units: int  # inputs in it
    tokens: int

    def entries(self) -> Iterator[Mapping[str, Any]]: ...

    def counts(self) -> dict[str, LabelCounts]: ...

    def left_out(self) -> Iterator[LeftOut]:
        """Texts that were not accepted, for a person to look at."""
        ...


class ShardBuilder(Protocol):
    """Prompts for shards that are missing, and shards from the answers."""

    groups_done: int

    def prompts(self) -> Iterator[Prompt | None]:
        """For the decoder. None where the next ones depend on answers that are still to come."""
        ...

    def take(self, sampled: Continuation) -> FinishedShard | None:
        """Add an answer, and return the shard that it completes, if any."""
        ...


class ProgressListener:
    """Is called at every shard and every answer; this one says nothing."""

    def begin(self, stage: "Stage", groups: int) -> None: ...

    def took(self, sampled: Continuation, job: ShardBuilder) -> None: ...

    def wrote(self, shard: FinishedShard) -> None: ...

    def end(self) -> None: ...


@dataclass
class DataSet(ABC):
    """What is to be written into one folder, shard by shard."""

    folder: Path
    title: str
    number: int  # of inputs
    shard_size: int
    identity: Mapping[str, Any]  # what decides the texts; another one is another data set
    about: Mapping[str, Any]  # what the manifest says besides

    @abstractmethod
    def describe(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Write what tells a person about the data set; what the manifest says about its texts."""

    @property
    def shards(self) -> int:
        return -(-self.number // self.shard_size)

    @property
    def store(self) -> ShardStore:
        return ShardStore(self.folder)

    def missing(self, ranks: Ranks = Ranks()) -> list[int]:  # noqa: B008  a tuple
        """Return the numbers of the shards that this process has still to write."""
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
        (self.folder / RECORDS_FOLDER).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / RECORDS_FOLDER / "lock", timeout=timeout)


@dataclass
class Stage(DataSet):
    """Its texts are decoded. A subclass knows the method that asks for them."""

    how: Decoding

    @abstractmethod
    def begin(self, missing: list[int], generator: Any) -> ShardBuilder:
        """The work on these shards."""

    @abstractmethod
    def groups(self, inputs: int) -> int:
        """Prompts for so many inputs."""

    @abstractmethod
    def passes(self, sampled: Continuation) -> bool:
        """Whether a text, seen alone, will be accepted."""


def run_stage(
    stage: Stage,
    generator: TextGenerator,
    ranks: Ranks,
    progress: ProgressListener,
    decoder: Decoder = decode,
) -> Statistics:
    """Write what is missing. With several processes, only this one's part; see `close_stage`."""
    if stage.how.max_new_tokens >= generator.context:
        raise InputError(
            f"max_new_tokens={stage.how.max_new_tokens}: {generator.name} has {generator.context} positions, for the "
            "prompt and what is written. Wanted fewer."
        )
    statistics = Statistics()
    missing = stage.missing(ranks)
    if not missing:
        return statistics
    stage.store.write_manifest(stage.manifest(complete=False))  # a folder that a kill leaves says what it is
    job = stage.begin(missing, generator)
    sizes = [min(stage.shard_size, stage.number - number * stage.shard_size) for number in missing]
    progress.begin(stage, stage.groups(sum(sizes)))
    try:
        for sampled in decoder(generator, job.prompts(), stage.how, statistics):
            if shard := job.take(sampled):
                about = {
                    "first": shard.first,
                    "inputs": shard.units,
                    "tokens": shard.tokens,
                    "labels": shard.counts(),
                    "left_out": some_left_out(shard.left_out()),
                }
                stage.store.write(shard.number, shard.entries(), about)
                progress.wrote(shard)
            progress.took(sampled, job)
    finally:
        progress.end()
    return statistics


def close_stage(stage: AnyDataSet, finish: Callable[[AnyDataSet], None], watch: WaitCallback | None = None) -> None:
    """``finish`` where all shards are there and it is not done yet; it completes the manifest.

    Of several processes the one that finds the last shard written closes. With ``watch`` the others wait until it has;
    it is told what is missing, and raises where that will not come.
    """
    while True:
        with stage.lock():
            if not (missing := stage.missing()):
                if not stage.is_complete():
                    finish(stage)
                return
        if watch is None:
            return
        watch(stage.folder, missing)
        time.sleep(SECONDS_BETWEEN_LOOKS)


def finish(stage: Stage) -> None:
    """Write the manifest with its measures, the report and the data card of a data set whose shards are all there."""
    counts = _leave(stage, complete=True)
    if not counts["accepted"]:
        reasons = ", ".join(f"{reason} {number}" for reason, number in counts["rejected"].items())
        log.warning(
            "%s: not one text was accepted (%s). report.md has more.", stage.folder, reasons or "none was asked for"
        )
        return
    log.info(
        "%s: %s of %s texts accepted (%.1f %%); report.html says how good they are.",
        stage.folder,
        f"{counts['accepted']:,}",
        f"{counts['samples']:,}",
        100 * counts["yield"],
    )


def leave_unfinished(stage: DataSet) -> None:
    """The same for the shards that are there; of several interrupted processes the first does it."""
    with contextlib.suppress(Timeout), stage.lock(timeout=0):
        if not stage.is_complete():
            _leave(stage, complete=False)


def _leave(stage: DataSet, *, complete: bool) -> dict[str, Any]:
    """The manifest last: where it says complete, all the rest is there."""
    manifest = stage.manifest(complete=complete)
    stage.store.write_manifest({**manifest, **stage.describe(manifest)})
    return manifest["counts"]
