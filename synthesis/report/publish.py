"""A data set in the form that hubs take: Parquet files, and a card whose front matter names them.

The folder appears whole or not at all. It holds what ``datasets`` and ``data=dino`` read, the reports and the manifest,
and nothing that a synthesis goes on from: that stays where it was written.
"""

import shutil
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts import InputError
from files.manifest import sha256_of, write_record
from files.ownership import check_replaceable, write_marker
from files.whole import whole_folder
from synthesis.report.cards import CARD
from synthesis.shards.store import MANIFEST, PICTURES, PUBLISHED, X1, read_entries, read_manifest

if TYPE_CHECKING:
    import pyarrow

ROWS_OF_A_GROUP = 10_000  # in memory at a time
GROUPS_OF_A_FILE = 50
OUTPUT_KIND = "published data set"  # kind of output
REPORT_FILES = ("report.md", "report.html", "annotation.md", *PICTURES)  # what a person reads


def publish(folder: Path, target: Path, *, overwrite: bool) -> int:
    """Write what ``folder`` holds to ``target``; how many texts.

    Raises:
        InputError: no data set in ``folder``, shards that are not those of its manifest, or a ``target`` in use.
    """
    manifest = read_manifest(folder)
    check_target(target, folder, overwrite=overwrite)
    with whole_folder(target.absolute()) as part:
        rows = _write(folder, part, manifest)
        if (folder / X1 / MANIFEST).is_file():
            _write(folder / X1, part / X1, read_manifest(folder / X1))
        write_marker(part, OUTPUT_KIND, sorted(path.name for path in part.iterdir()))
    return rows


def check_target(target: Path, folder: Path, *, overwrite: bool) -> None:
    """Raises InputError where there is something that may not be replaced, or will be: ``folder`` itself."""
    ways = target.resolve(), folder.resolve()
    if ways[0].is_relative_to(ways[1]) or ways[1].is_relative_to(ways[0]):
        raise InputError(f"publish={target} and output={folder} are one within the other. Choose a folder beside it.")
    if check_replaceable("publish", target, OUTPUT_KIND) and not overwrite:
        raise InputError(
            f"publish={target} is there already. Choose a new folder, or replace it by a command that only publishes "
            f"(where texts are written, overwrite=true throws those away): python -m synthesis output={folder} "
            f"publish={target} overwrite=true"
        )


def _write(folder: Path, target: Path, manifest: Mapping[str, Any]) -> int:
    """Parquet, reports and manifest of one data set."""
    target.mkdir(exist_ok=True)
    files = list(_write_files(folder, target))
    rows, stated = sum(one["entries"] for one in files), manifest["counts"]["accepted"]
    if rows == stated == 0:
        raise InputError(f"output={folder} holds no texts: there is nothing to publish.")
    if rows != stated:
        raise InputError(
            f"output={folder}: its shards hold {rows:,} rows, and its {MANIFEST} says {stated:,}. The command that was "
            "cut short there goes on."
        )
    if not (folder / CARD).is_file():
        raise InputError(f"output={folder} has no {CARD} yet. The command that was cut short there goes on.")
    for name in REPORT_FILES:
        if (folder / name).is_file():
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, target / name)
    card = (folder / CARD).read_text(encoding="utf-8")
    (target / CARD).write_text(card.replace("shard-*.jsonl", "shard-*.parquet"), encoding="utf-8")
    about = {**manifest, PUBLISHED: "parquet", "shards": files}
    write_record(target / MANIFEST, about)
    return rows


def _write_files(folder: Path, target: Path) -> Iterator[dict[str, Any]]:
    """What the manifest says of each file."""
    import pyarrow.parquet

    groups = _groups(folder)
    first = next(groups, None)
    number = 0
    while first is not None:
        path, rows = target / f"shard-{number:05d}.parquet", 0
        with pyarrow.parquet.ParquetWriter(path, first.schema, compression="zstd") as writer:
            for group in (first, *islice(groups, GROUPS_OF_A_FILE - 1)):
                writer.write_table(group)
                rows += group.num_rows
        yield {"file": path.name, "entries": rows, "sha256": sha256_of(path)}
        first, number = next(groups, None), number + 1


def _groups(folder: Path) -> "Iterator[pyarrow.Table]":
    """Tables of one schema. A column that is empty, as text_b of first sentences, is one of texts."""
    import pyarrow

    entries = read_entries(folder)
    schema: pyarrow.Schema | None = None
    while rows := list(islice(entries, ROWS_OF_A_GROUP)):
        if schema is None:
            found = pyarrow.Table.from_pylist(rows).schema
            schema = pyarrow.schema(
                [(field.name, pyarrow.string() if field.type == pyarrow.null() else field.type) for field in found]
            )
        yield pyarrow.Table.from_pylist(rows, schema=schema)
