"""Exact duplicates in a corpus of any size, by 64-bit hashes on disk.

Hashes are written beside the places of their texts into one of 256 files each, by their first bits. Equal texts meet in
the same bucket, and one bucket after the other is sorted. Memory is one buffer and one bucket (a 256th of 16 bytes per
text: 12 MB of 200 million). Two different texts of n share a hash with probability n^2 / 2^65: 0.1 % for 200 million.
"""

import hashlib
from pathlib import Path

import numpy as np

BUCKETS = 256
BUFFER = 1 << 18  # texts
PAIR = np.dtype([("hash", "<u8"), ("place", "<u8")])


class Duplicates:
    """``add`` every text in order, then ask ``mark``. Writes into ``folder``, which is the caller's to remove."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.buffer = np.empty(BUFFER, dtype="<u8")
        self.filled = self.written = 0

    def add(self, text: str) -> None:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        self.buffer[self.filled] = int.from_bytes(digest, "little")
        self.filled += 1
        if self.filled == BUFFER:
            self._flush()

    def mark(self) -> np.ndarray:
        """(texts,) uint8, memory-mapped: 1 where an equal text came before."""
        self._flush()
        path = self.folder / "duplicates"
        path.write_bytes(b"")
        if not self.written:
            return np.zeros(0, dtype=np.uint8)
        marks = np.memmap(path, dtype=np.uint8, mode="w+", shape=(self.written,))
        for bucket in range(BUCKETS):
            file = self._path(bucket)
            if not file.is_file():
                continue
            pairs = np.fromfile(file, dtype=PAIR)
            order = np.argsort(pairs["hash"], kind="stable")  # places ascend within equal hashes
            hashes = pairs["hash"][order]
            marks[pairs["place"][order[1:][hashes[1:] == hashes[:-1]]]] = 1
            file.unlink()
        return marks

    def _flush(self) -> None:
        hashes = self.buffer[: self.filled]
        bucket = hashes >> np.uint64(56)
        order = np.argsort(bucket, kind="stable")
        pairs = np.empty(self.filled, dtype=PAIR)
        pairs["hash"] = hashes[order]
        pairs["place"] = order.astype(np.uint64) + np.uint64(self.written)
        ends = np.searchsorted(bucket[order], np.arange(BUCKETS + 1, dtype=np.uint64))
        for number in np.flatnonzero(np.diff(ends)):
            with self._path(int(number)).open("ab") as file:
                file.write(pairs[ends[number] : ends[number + 1]].tobytes())
        self.written += self.filled
        self.filled = 0

    def _path(self, bucket: int) -> Path:
        return self.folder / f"bucket-{bucket:03d}"
