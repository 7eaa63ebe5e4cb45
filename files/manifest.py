"""What is written down about the files that something was made of: their sizes and sha256."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_FILES_LISTED = 100  # one by one; the sum is over all


def sha256_of(path: Path) -> str:
    """The sum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_all(sums: Sequence[str]) -> str:
    """One sum for several files, from theirs in order: moving or renaming the files changes nothing."""
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def describe_files(paths: Sequence[Path]) -> dict[str, Any]:
    """The entries of a manifest that say which files were read; reads all of them."""
    files = [{"path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in paths]
    return {
        "number_of_files": len(files),
        "files": files[:MOST_FILES_LISTED],
        "sha256": sha256_of_all([str(file["sha256"]) for file in files]),
    }
