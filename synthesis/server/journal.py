"""Answers that were paid for: each is on disk before it is counted, and whoever goes on asks for none of them again.

Lines that are appended, one process a file. What a kill tore, or a disk changed, counts as not answered.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_NAME = "answers-{}.jsonl"


class Journal:
    """Of the process ``rank``; it knows what all have recorded before. In memory are places in files, no answers."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.places: dict[str, tuple[Path, int]] = {}
        torn = {path for path in sorted(folder.glob(FILE_NAME.format("*"))) if not self._read(path)}
        own = folder / FILE_NAME.format(rank)
        self.file = own.open("ab")
        if own in torn:
            self.file.write(b"\n")

    def known(self, asked: str) -> dict[str, Any] | None:
        """The answer to what was asked, where an earlier command had it."""
        if asked not in self.places:
            return None
        path, place = self.places[asked]
        with path.open("rb") as file:
            file.seek(place)
            found = _parsed(file.readline())
        return found[1] if found else None

    def record(self, asked: str, answer: Mapping[str, Any]) -> None:
        """A kill of the process cannot take it back; see `sync`."""
        self.file.write(json.dumps([asked, answer, _sum(asked, answer)]).encode() + b"\n")
        self.file.flush()

    def sync(self) -> None:
        """Nor can a power cut, from here on."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()

    def _read(self, path: Path) -> bool:
        """Whether its last line is whole."""
        line = b"\n"
        with path.open("rb") as file:
            place = 0
            for line in file:
                if found := _parsed(line):
                    self.places[found[0]] = (path, place)
                place += len(line)
        return line.endswith(b"\n")


def name_of(*asked: Any) -> str:
    """A name for what is asked."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


def _parsed(line: bytes) -> tuple[str, dict[str, Any]] | None:
    try:
        asked, answer, total = json.loads(line)
        return (asked, answer) if total == _sum(asked, answer) else None
    except (ValueError, TypeError):  # not JSON, not UTF-8, not three
        return None


def _sum(asked: str, answer: Mapping[str, Any]) -> str:
    return name_of(asked, answer)[:8]
