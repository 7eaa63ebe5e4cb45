"""Journal of paid answers: each answer is saved before it is used, and never requested twice.

The journal has a line of JSON for each answer. A line that a kill truncated counts as not answered.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_NAME = "answers.jsonl"


class Journal:
    """Journal of earlier and new answers. Memory contains positions in the file, but no answers."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.places: dict[str, int] = {}
        self.file = (folder / FILE_NAME).open("a+b")
        self.file.seek(0)
        place, line = 0, b"\n"
        for line in self.file:
            if found := _parsed(line):
                self.places[found[0]] = place
            place += len(line)
        if not line.endswith(b"\n"):
            self.file.write(b"\n")

    def known(self, asked: str) -> dict[str, Any] | None:
        """Return the answer to a request if an earlier command received it."""
        if asked not in self.places:
            return None
        self.file.seek(self.places[asked])  # writes are appended at the end regardless
        found = _parsed(self.file.readline())
        return found[1] if found else None

    def record(self, asked: str, answer: Mapping[str, Any]) -> None:
        """Save an answer, so that it survives a kill of the process; see `sync`."""
        self.file.write(json.dumps([asked, answer]).encode() + b"\n")
        self.file.flush()

    def sync(self) -> None:
        """Make the saved answers survive a power failure, too."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def name_of(*asked: Any) -> str:
    """Return a name for a request."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def _parsed(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        asked, answer = json.loads(line)
        return (asked, answer) if isinstance(asked, str) and isinstance(answer, dict) else None
    except (ValueError, TypeError):  # not JSON, not UTF-8, or not a pair
        return None
