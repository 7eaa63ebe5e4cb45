"""Store a dataset as numbered shards, which are written atomically, and a manifest.

``.shards/NNNNN.json`` contains the record of a shard (counts, SHA-256). The record is written before the shard gets its
final name, so an existing shard is complete and has a record. If a process is killed, its unfinished shards are written
again with the same result. A shard without accepted texts has no file, since readers reject empty files.
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
from contrastive_encoders.reports.tables import shorten

MANIFEST = "manifest.json"
RECORDS_FOLDER = ".shards"
SENTENCES_FOLDER = ".sentences"  # the sentences for which a folder is written, within that folder
DATA_SET = "data set"  # kind of output
MAX_REJECTED_TEXTS = 20  # rejected texts that a record keeps
X1 = "x1"  # the first sentences that were written, within a folder of pairs
NESTED_DATA_SETS = (X1, "scored", "written")  # the last two: all texts written for triplets and for questions
ANNOTATION_FILES = ("annotation.csv", "annotation-key.json", "annotation.md")
# In order of removal: if the removal is interrupted, no shard counts without its record
OWNED_ENTRIES = (
    *NESTED_DATA_SETS,
    RECORDS_FOLDER,
    SENTENCES_FOLDER,
    "shard-[0-9]*.jsonl",
    "report.html",
    "README.md",
    *ANNOTATION_FILES,
    "pairs.jsonl.gz",
    "train.jsonl.gz",
    "candidates.jsonl.gz",
    "documents.jsonl.gz",
    "sentences.txt.gz",
    "held_out",
    "development",
    MANIFEST,
)

log = logging.getLogger(__name__)
Item = TypeVar("Item")


class SynthesisError(Exception):
    """Raised if a dataset cannot be finished. Its finished shards are kept."""


class LabelCounts(TypedDict):
    """Numbers of drawn, accepted, and rejected samples for a label."""

    samples: int  # drawn samples, including those without room in the context
    accepted: int
    rejected: dict[str, int]  # reason -> samples


def accept_all(numbers: Mapping[str, int]) -> dict[str, LabelCounts]:
    """Return label counts that count all texts as accepted, since rules are applied in a later stage."""
    return {label: LabelCounts(samples=number, accepted=number, rejected={}) for label, number in numbers.items()}


class RejectedText(TypedDict):
    """A rejected text, which is recorded for inspection."""

    x1: str | None  # the text that it was written for
    text: str
    label: str
    why: str
    p: NotRequired[float | None]  # probability of the answer that its label requires; None: not judged


class ShardRecord(TypedDict):
    """Record of a shard: its file, checksum, and counts."""

    file: str
    first: int  # first input, counted from 0
    inputs: int
    entries: int
    bytes: int
    sha256: str
    tokens: int  # drawn
    labels: dict[str, LabelCounts]
    left_out: NotRequired[list[RejectedText]]  # some of them


class ShardEntry(TypedDict):
    """A line of a shard: one or two texts, and their label."""

    text_a: str
    text_b: str | None  # None if only first sentences are written
    label: str


class ShardStore:
    """Folder with the shards, the records, and the manifest of a dataset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, identity: Mapping[str, Any], *, overwrite: bool) -> bool:
        """Claim the folder for a dataset, and return whether the dataset is already finished.

        If ``overwrite``, the output of an earlier command is removed.

        Raises:
            InputError: The folder contains another dataset or other files.
        """
        check_owner("output", self.folder, DATA_SET)
        if overwrite:
            remove_entries(self.folder)
        elif self.is_finished(identity):
            return True
        write_marker(self.folder, DATA_SET, OWNED_ENTRIES)
        return False

    def is_finished(self, identity: Mapping[str, Any]) -> bool:
        """Return whether all shards of the dataset are written.

        Raises:
            InputError: The folder contains a dataset with another identity.
        """
        if not (self.folder / MANIFEST).is_file():
            return False
        before = read_manifest(self.folder)
        if not before["complete"] and not any(self.folder.rglob("shard-*")):
            return False  # a command that failed before its first shard leaves the folder to the corrected one
        check_identity("output", self.folder, before["identity"], identity)
        return bool(before["complete"]) and all(self.is_done(number) for number in range(before["shards_planned"]))

    def is_done(self, number: int) -> bool:
        """Return whether a shard exists and has the recorded checksum."""
        record = self.record(number)
        shard = self.folder / shard_name(number)
        if record is None or not shard.is_file():
            return record is not None and record["bytes"] == 0
        about = shard.stat()
        return about.st_size == record["bytes"] and _has_checksum(shard, record["sha256"], about.st_mtime_ns)

    def record(self, number: int) -> ShardRecord | None:
        path = self.folder / RECORDS_FOLDER / f"{number:05d}.json"
        try:
            return cast(ShardRecord, read_record(path))
        except (FileNotFoundError, CorruptFileError):
            return None

    def records(self, shards: int) -> list[ShardRecord]:
        """Return the records of the finished shards, in order, without rejected texts: ``left_out`` is an empty list in
        each record.
        """
        done = [cast(ShardRecord, self.record(number)) for number in range(shards) if self.is_done(number)]
        return [cast(ShardRecord, {**record, "left_out": []}) for record in done]

    def write(self, number: int, data: bytes, about: Mapping[str, Any], *, sync: bool = True) -> ShardRecord:
        """Write the lines ``data`` as a shard. ``about`` contains further entries of its record.

        If ``sync`` is False, a power failure may undo the write. This is for data that can be recreated quickly.
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
        """Return the manifest: ``header``, the shards, and the sums of their counts."""
        records = self.records(shards)
        kept = ("file", "first", "inputs", "entries", "sha256")
        return {
            "version": RECORD_VERSION,
            "complete": complete,
            **header,
            "shards_planned": shards,
            "counts": sum_counts(records),
            "shards": [{key: record[key] for key in kept} for record in records if record["entries"]],  # type: ignore[literal-required]
        }

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_record(self.folder / MANIFEST, manifest)


@functools.lru_cache(maxsize=1 << 16)  # a command calls this several times
def _has_checksum(shard: Path, sha256: str, changed: int) -> bool:
    if sha256_of(shard) == sha256:
        return True
    log.warning("%s has changed since it was written. Writing it again.", shard)
    return False


def interleave(found: Iterable[Item], most: int, kind: Callable[[Item], Hashable]) -> list[Item]:
    """Return at most ``most`` items, taken in turn from each group. Items of a group keep their order."""
    kinds: dict[Hashable, list[Item]] = {}
    for one in found:
        kinds.setdefault(kind(one), []).append(one)
    turns = chain.from_iterable(zip_longest(*kinds.values()))
    return list(islice((one for one in turns if one is not None), most))


def sample_rejected(found: Iterable[RejectedText]) -> list[RejectedText]:
    """Select the rejected texts for a shard's record, taken in turn from each label and reason.

    Long texts are truncated.
    """
    kept = interleave(found, MAX_REJECTED_TEXTS, lambda one: (one["label"], one["why"]))
    return [{**one, "x1": one["x1"] and shorten(one["x1"]), "text": shorten(one["text"])} for one in kept]


def to_json_lines(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Convert the entries of a shard to JSON lines."""
    return b"".join(json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in entries)


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.jsonl"


def read_entries(folder: Path) -> Iterator[ShardEntry]:
    """Yield the entries of all shards in a folder, in order."""
    for path in sorted(folder.glob("shard-*.jsonl")):
        yield from read_shard(path)


def read_shard(path: Path) -> Iterator[ShardEntry]:
    """Yield the entries of a shard. If there is no file, the shard has no entries, since no text was accepted.

    Raises:
        InputError: A line is not JSON, for instance because of a disk error or an editor.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
            except ValueError as error:  # not JSON, or not UTF-8
                raise InputError(
                    location=f"{path}, line {number}",
                    value=error,
                    expected="a line of JSON",
                    hint="Remove the file, then rerun the command that wrote it.",
                ) from None
            yield entry


def read_manifest(
    folder: Path, key: str = "output", expected: str = "the output directory of `generate`"
) -> dict[str, Any]:
    """Read the manifest of a dataset.

    Args:
        key: The config key that names the folder.
        expected: Description of a valid folder, for the error if there is no manifest.

    Raises:
        InputError: The folder contains no manifest, or a manifest that was not written by a synthesis or by this
            version of the project.
    """
    path = folder / MANIFEST
    try:
        found = read_record(path)
    except FileNotFoundError:
        raise InputError(key=key, value=folder, expected=f"{expected}, which contains {MANIFEST}") from None
    except (OSError, CorruptFileError) as error:
        raise InputError(
            location=str(path), value=error, expected="an intact manifest of a data set", hint=overwrite_hint("output")
        ) from None
    if "identity" not in found:
        raise InputError(location=str(path), expected="a manifest written by `generate`", hint=overwrite_hint("output"))
    check_version(
        found.get("version"), "a data set", key=key, value=folder, hint="Generate the data set again in another output."
    )
    return found


def read_finished(folder: Path, kind: str, writer: str) -> dict[str, Any]:
    """Read the manifest of a finished dataset that is the input of another recipe.

    ``writer`` is the recipe that writes datasets of this ``kind``.

    Raises:
        InputError: The folder contains no such dataset, or the dataset is not finished.
    """
    manifest = read_manifest(folder, "input", f"the output of {writer}")
    if (found := manifest["identity"].get("kind")) != kind:
        expected = f"the output of {writer}, not a data set of the kind {found!r}"
        raise InputError(key="input", value=folder, expected=expected)
    if not manifest["complete"]:
        hint = "Rerun the command that wrote the data set to finish it."
        raise InputError(key="input", value=folder, expected="a finished data set", hint=hint)
    return manifest


def sum_counts(records: Sequence[ShardRecord]) -> dict[str, Any]:
    """Sum the counts of shards, by label and in total."""
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
