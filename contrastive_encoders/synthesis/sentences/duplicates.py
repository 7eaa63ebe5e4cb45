"""Detect exact duplicates in a corpus of any size, by 64-bit hashes in a database on disk.

The probability that any two of n different texts share a hash is n^2 / 2^65: 0.1 % for 200 million texts.
"""

import hashlib
import sqlite3
from pathlib import Path

SETTINGS = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536; -- KiB: all the memory that it takes
CREATE TABLE seen (hash INTEGER PRIMARY KEY);
BEGIN;
"""


class Duplicates:
    """Set of the hashes of all texts so far. The database is in ``folder``, which the caller must remove."""

    def __init__(self, folder: Path) -> None:
        self.base = sqlite3.connect(folder / "seen.sqlite", isolation_level=None)
        self.base.executescript(SETTINGS)

    def is_new(self, text: str) -> bool:
        """Add a text, and return whether the text was not in the set yet."""
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little", signed=True)
        return self.base.execute("INSERT OR IGNORE INTO seen VALUES (?)", (number,)).rowcount == 1

    def close(self) -> None:
        self.base.close()
