"""Journal of a server's answers, which may cost money. Each is saved before it is used, and never requested twice.

The journal contains a JSON line for each answer. A truncated line, after a kill of the process, is ignored.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_NAME = "answers.jsonl"


class Journal:
    """File with the server's answers to the requests of this and earlier commands. Only file offsets of the answers are
    kept in memory.
    """

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
        """Return the saved answer to a request, or None if there is none."""
        if asked not in self.places:
            return None
        self.file.seek(self.places[asked])  # writes are appended at the end regardless
        found = _parsed(self.file.readline())
        return found[1] if found else None

    def record(self, asked: str, answer: Mapping[str, Any]) -> None:
        """Append an answer to the file, so that it is not lost if the process is killed."""
        self.file.write(json.dumps([asked, answer]).encode() + b"\n")
        self.file.flush()

    def sync(self) -> None:
        """Sync the file to disk, so that the answers also survive a power failure."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def name_of(*asked: Any) -> str:
    """Return a hash that identifies a request."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def _parsed(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        asked, answer = json.loads(line)
        return (asked, answer) if isinstance(asked, str) and isinstance(answer, dict) else None
    except (ValueError, TypeError):  # not JSON, not UTF-8, or not a pair
        return None
