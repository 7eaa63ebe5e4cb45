"""A data set in the format of the hub: a Parquet file and a card.

The folder appears whole or not at all. It holds what ``datasets`` and ``data=dino`` read, the reports and the manifest,
and nothing that a synthesis goes on from: that stays where it was written.
"""

import shutil
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from contrastive_encoders.core import InputError
from contrastive_encoders.io.atomic import whole_folder
from contrastive_encoders.io.manifest import sha256_of, write_record
from contrastive_encoders.io.output_directory import check_replaceable, write_marker
from contrastive_encoders.synthesis.report.cards import CARD
from contrastive_encoders.synthesis.shards.store import MANIFEST, PICTURES, PUBLISHED, X1, read_entries, read_manifest

ROWS_OF_A_GROUP = 10_000  # of the Parquet file; in memory at a time
OUTPUT_KIND = "published data set"  # kind of output
REPORT_FILES = ("report.md", "report.html", "annotation.md", *PICTURES)  # what a person reads


def publish(folder: Path, target: Path, *, overwrite: bool) -> int:
    """Write the data set of ``folder`` to ``target``; return the number of texts.

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
    """Raise InputError where ``target`` holds something that may not be replaced, or is ``folder`` itself."""
    ways = target.resolve(), folder.resolve()
    if ways[0].is_relative_to(ways[1]) or ways[1].is_relative_to(ways[0]):
        raise InputError(f"publish={target} and output={folder} are one within the other. Choose a folder beside it.")
    if check_replaceable("publish", target, OUTPUT_KIND) and not overwrite:
        raise InputError(
            f"publish={target} is there already. Choose a new folder, or replace it by a command that only publishes "
            f"(where texts are written, overwrite=true throws those away): contrastive-encoders generate "
            f"output={folder} publish={target} overwrite=true"
        )


def _write(folder: Path, target: Path, manifest: Mapping[str, Any]) -> int:
    """Parquet, reports and manifest of one data set."""
    target.mkdir(exist_ok=True)
    path = target / "shard-00000.parquet"
    rows, stated = _write_rows(folder, path), manifest["counts"]["accepted"]
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
    shards = [{"file": path.name, "entries": rows, "sha256": sha256_of(path)}]
    write_record(target / MANIFEST, {**manifest, PUBLISHED: "parquet", "shards": shards})
    return rows


def _write_rows(folder: Path, path: Path) -> int:
    """Write the Parquet file; return the number of rows. A column without any value, as text_b of first sentences, has
    the type of texts.
    """
    import pyarrow.parquet

    entries = read_entries(folder)
    group = list(islice(entries, ROWS_OF_A_GROUP))
    found = pyarrow.Table.from_pylist(group).schema
    texts = pyarrow.string()
    schema = pyarrow.schema([(one.name, texts if one.type == pyarrow.null() else one.type) for one in found])
    number = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group:
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            number += len(group)
            group = list(islice(entries, ROWS_OF_A_GROUP))
    return number
