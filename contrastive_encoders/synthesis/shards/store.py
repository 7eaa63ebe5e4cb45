"""A sharded data set: numbered shards that appear atomically, and a manifest.

``.shards/NNNNN.json`` holds what is known about a shard (counts, sha256). It is written before the shard is renamed
into place, so a shard that is there is whole and accounted for. What was under way when a process was killed is written
anew, and comes out the same. A shard in which nothing was accepted has no file: readers refuse empty ones.
"""

import functools
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, NotRequired, TypedDict, TypeVar, cast

from contrastive_encoders.core import RECORD_VERSION, InputError, check_version
from contrastive_encoders.io.atomic import atomic_write
from contrastive_encoders.io.manifest import CorruptFileError, read_record, sha256_of, write_record
from contrastive_encoders.io.output_directory import (
    check_identity,
    check_owner,
    overwrite_hint,
    remove_entries,
    write_marker,
)
from contrastive_encoders.reports.tables import beginning

MANIFEST = "manifest.json"
RECORDS_FOLDER = ".shards"
SENTENCES_FOLDER = ".sentences"  # within a folder that is written for sentences, these
DATA_SET = "data set"  # kind of output
MOST_LEFT_OUT = 20  # texts that a record keeps of those that were not accepted
X1 = "x1"  # within a folder of pairs, those of their first sentences that were written
NESTED_DATA_SETS = (X1, "scored", "written")  # the others within triplets and questions: all that was written for them
ANNOTATION_FILES = ("annotation.csv", "annotation-key.json", "annotation.md")
# In the order in which they are removed: without its record no shard counts, should the removal be cut short
OWNED_ENTRIES = (
    *NESTED_DATA_SETS,
    RECORDS_FOLDER,
    SENTENCES_FOLDER,
    "shard-[0-9]*.jsonl",
    "report.html",
    "README.md",
    *ANNOTATION_FILES,
    "train.jsonl.gz",
    "candidates.jsonl.gz",
    "held_out",
    "choice",
    MANIFEST,
)

log = logging.getLogger(__name__)
One = TypeVar("One")


class SynthesisError(Exception):
    """Writing failed; the finished shards are still whole."""


class LabelCounts(TypedDict):
    """Counts of a label."""

    samples: int  # drawn, those without room in the context too
    accepted: int
    rejected: dict[str, int]  # reason -> samples


def all_accepted(numbers: Mapping[str, int]) -> dict[str, LabelCounts]:
    """Return the counts of labels all of whose texts are kept, as rules choose among them later."""
    return {label: LabelCounts(samples=number, accepted=number, rejected={}) for label, number in numbers.items()}


class RejectedText(TypedDict):
    """A text that was not accepted, for a person to look at."""

    x1: str | None  # what it was written for
    text: str
    label: str
    why: str
    p: NotRequired[float | None]  # of the answer that its label wants; None: it was not judged


class ShardRecord(TypedDict):
    """The record of a shard."""

    file: str
    first: int  # of its inputs, counted from 0
    inputs: int
    entries: int
    bytes: int
    sha256: str
    tokens: int  # drawn
    labels: dict[str, LabelCounts]
    left_out: NotRequired[list[RejectedText]]  # some of them


class ShardEntry(TypedDict):
    """A line of a shard."""

    text_a: str
    text_b: str | None  # None where only first sentences are written
    label: str


class ShardStore:
    """A folder for shards of ``shard_size`` inputs each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, identity: Mapping[str, Any], *, overwrite: bool) -> bool:
        """Mark the folder as that of this data set, and return whether it is finished. With ``overwrite`` what an
        earlier command left is removed.

        Raises:
            InputError: the folder holds another data set or other files.
        """
        check_owner("output", self.folder, DATA_SET)
        if overwrite:
            remove_entries(self.folder)
        elif self.is_finished(identity):
            return True
        write_marker(self.folder, DATA_SET, OWNED_ENTRIES)
        return False

    def is_finished(self, identity: Mapping[str, Any]) -> bool:
        """Return whether all shards are written.

        Raises:
            InputError: they were made from something else.
        """
        if not (self.folder / MANIFEST).is_file():
            return False
        before = read_manifest(self.folder)
        if not before["complete"] and not any(self.folder.rglob("shard-*")):
            return False  # a command that was refused before its first shard leaves the folder to the corrected one
        check_identity("output", self.folder, before["identity"], identity)
        return bool(before["complete"]) and all(self.is_done(number) for number in range(before["shards_planned"]))

    def is_done(self, number: int) -> bool:
        """Return whether a shard is there, and byte for byte as it was written."""
        record = self.record(number)
        shard = self.folder / shard_name(number)
        if record is None or not shard.is_file():
            return record is not None and record["bytes"] == 0
        about = shard.stat()
        return about.st_size == record["bytes"] and _is_sound(shard, record["sha256"], about.st_mtime_ns)

    def record(self, number: int) -> ShardRecord | None:
        path = self.folder / RECORDS_FOLDER / f"{number:05d}.json"
        try:
            return cast(ShardRecord, read_record(path))
        except (FileNotFoundError, CorruptFileError):
            return None

    def records(self, shards: int) -> list[ShardRecord]:
        """Return the records of the shards that are done, in order; without their ``left_out``, which of many shards
        are many texts.
        """
        done = [cast(ShardRecord, self.record(number)) for number in range(shards) if self.is_done(number)]
        return [cast(ShardRecord, {**record, "left_out": []}) for record in done]

    def write(self, number: int, data: bytes, about: Mapping[str, Any], *, sync: bool = True) -> ShardRecord:
        """Write a shard of these lines; ``about`` are further entries of its record.

        Without ``sync`` a power cut may take it back: for what is made again in no time.
        """
        record = cast(
            ShardRecord,
            {
                **about,
                "file": shard_name(number),
                "entries": data.count(b"\n"),
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            },
        )
        write_record(self.folder / RECORDS_FOLDER / f"{number:05d}.json", record, sync=sync, indent=None)
        if data:
            atomic_write(self.folder / shard_name(number), data, sync=sync)
        else:
            (self.folder / shard_name(number)).unlink(missing_ok=True)
        return record

    def manifest(self, header: Mapping[str, Any], shards: int, *, complete: bool) -> dict[str, Any]:
        """Return ``header`` with the sums over the records of the shards."""
        records = self.records(shards)
        kept = ("file", "first", "inputs", "entries", "sha256")
        return {
            "version": RECORD_VERSION,
            "complete": complete,
            **header,
            "shards_planned": shards,
            "counts": total(records),
            "shards": [{key: record[key] for key in kept} for record in records if record["entries"]],  # type: ignore[literal-required]
        }

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_record(self.folder / MANIFEST, manifest)


@functools.lru_cache(maxsize=1 << 16)  # a command asks several times
def _is_sound(shard: Path, sha256: str, changed: int) -> bool:
    if sha256_of(shard) == sha256:
        return True
    log.warning("%s has changed since it was written. It is written again.", shard)
    return False


def spread(found: Iterable[One], most: int, kind: Callable[[One], Hashable]) -> list[One]:
    """At most so many: kinds take turns, each with its first ones first."""
    kinds: dict[Hashable, list[One]] = {}
    for one in found:
        kinds.setdefault(kind(one), []).append(one)
    turns = chain.from_iterable(zip_longest(*kinds.values()))
    return list(islice((one for one in turns if one is not None), most))


def some_left_out(found: Iterable[RejectedText]) -> list[RejectedText]:
    """As many as a record keeps, of every label and reason; of long texts the beginning."""
    kept = spread(found, MOST_LEFT_OUT, lambda one: (one["label"], one["why"]))
    return [{**one, "x1": one["x1"] and beginning(one["x1"]), "text": beginning(one["text"])} for one in kept]


def as_lines(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """The lines of a shard."""
    return b"".join(json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in entries)


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.jsonl"


def read_entries(folder: Path) -> Iterator[ShardEntry]:
    """Yield the entries of all shards in a folder, in order."""
    for path in sorted(folder.glob("shard-*.jsonl")):
        yield from read_shard(path)


def read_shard(path: Path) -> Iterator[ShardEntry]:
    """Yield the entries of a shard; none where it has no file, as nothing in it was accepted.

    Raises:
        InputError: a line that is not JSON, as a disk or an editor leaves it.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
            except ValueError as error:  # not JSON, or not UTF-8
                raise InputError(
                    f"{path}, line {number}: wanted JSON, got: {error}. Remove the file; the command that wrote it "
                    "writes it again."
                ) from None
            yield entry


def read_manifest(folder: Path, key: str = "output") -> dict[str, Any]:
    """Read the manifest of a data set.

    Args:
        key: the key of the config that names the folder.

    Raises:
        InputError: the folder has no manifest, or one that no synthesis wrote, or another version of the project.
    """
    path = folder / MANIFEST
    try:
        found = read_record(path)
    except FileNotFoundError:
        raise InputError(f"{key}={folder}: there is no {MANIFEST}. Name the folder of a synthesis.") from None
    except (OSError, CorruptFileError) as error:
        raise InputError(
            location=str(path), value=error, expected="the JSON of a synthesis", hint=overwrite_hint("output")
        ) from None
    if "identity" not in found:
        raise InputError(location=str(path), expected="the manifest of a synthesis", hint=overwrite_hint("output"))
    check_version(
        found.get("version"), "a data set", key=key, value=folder, hint="Generate it again in another output."
    )
    return found


def read_finished(folder: Path, kind: str, writer: str) -> dict[str, Any]:
    """Read the manifest of a finished data set, which another recipe goes on from; ``writer`` is what writes this kind.

    Raises:
        InputError: it is none, or is not finished.
    """
    try:
        manifest = read_manifest(folder, "input")
    except InputError as error:
        raise InputError(f"{error} This recipe reads what {writer} wrote.") from None
    if (found := manifest["identity"].get("kind")) != kind:
        raise InputError(f"input={folder}: wanted the output of {writer}; this is a data set of kind {found}.")
    if not manifest["complete"]:
        raise InputError(f"input={folder}: it is not finished. Finish it first: the command that began it goes on.")
    return manifest


def total(records: Sequence[ShardRecord]) -> dict[str, Any]:
    """Counts over shards, by label and together."""
    labels: dict[str, LabelCounts] = {}
    for record in records:
        for name, counts in record["labels"].items():
            sums = labels.setdefault(name, LabelCounts(samples=0, accepted=0, rejected={}))
            sums["samples"] += counts["samples"]
            sums["accepted"] += counts["accepted"]
            sums["rejected"] = dict(Counter(sums["rejected"]) + Counter(counts["rejected"]))
    rejected = sum((Counter(counts["rejected"]) for counts in labels.values()), Counter[str]())
    samples = sum(counts["samples"] for counts in labels.values())
    accepted = sum(counts["accepted"] for counts in labels.values())
    return {
        "inputs": sum(record["inputs"] for record in records),
        "samples": samples,
        "accepted": accepted,
        "yield": accepted / samples if samples else 0.0,
        "tokens": sum(record["tokens"] for record in records),
        "rejected": dict(rejected),
        "labels": {
            name: {**counts, "yield": counts["accepted"] / counts["samples"] if counts["samples"] else 0.0}
            for name, counts in labels.items()
        },
    }
