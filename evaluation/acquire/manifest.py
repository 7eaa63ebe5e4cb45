"""Which data a score was made of."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.acquire.download import RECORD
from evaluation.acquire.registry import tables_of
from evaluation.tsv import table
from files.manifest import sha256_of


def manifest(data_root: Path, tasks: Sequence[str]) -> dict[str, Any]:
    """The sha256 of the tables that ``tasks`` are read from, and of what they were made of if they were fetched."""
    names = sorted({name for task in tasks for name in tables_of(task)})
    paths = {name: table(data_root, name) for name in names}
    record = data_root / RECORD
    return {
        "data_root": str(data_root),
        "tables": {name: sha256_of(path) for name, path in paths.items() if path.is_file()},
        "downloads": json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {},
    }
