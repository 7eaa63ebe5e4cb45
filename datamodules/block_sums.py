"""Sums of the blocks of a large file, each compared when something of its block is first read.

Whoever opens the file reads none of it; a random draw reads one block a row, hence blocks of a quarter MiB.
"""

import zlib
from pathlib import Path

import numpy as np

from files.manifest import Damaged

BLOCK = 1 << 18  # bytes


class Summing:
    """Takes the bytes of a file as they are written."""

    def __init__(self) -> None:
        self.done, self.current, self.filled = list[int](), 0, 0

    def update(self, data: bytes | memoryview) -> None:
        data = memoryview(data)
        while len(data):
            part = data[: BLOCK - self.filled]
            self.current, self.filled = zlib.crc32(part, self.current), self.filled + len(part)
            if self.filled == BLOCK:
                self.done.append(self.current)
                self.current = self.filled = 0
            data = data[len(part) :]

    def sums(self) -> list[int]:
        """CRC-32 of each block, the last of which may be shorter."""
        return [*self.done, *([self.current] if self.filled else [])]


class BlockSums:
    """Of a file of items of so many bytes, which are asked for by their places."""

    def __init__(self, path: Path, item_bytes: int, sums: list[int]) -> None:
        self.path, self.item_bytes, self.sums = path, item_bytes, sums
        self.unread = np.ones(len(sums), dtype=bool)
        self.left = len(sums)
        if len(sums) != -(-path.stat().st_size // BLOCK):
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes, and {len(sums)} sums of blocks")

    def check_each(self, firsts: np.ndarray, ends: np.ndarray) -> None:
        """Items from each of ``firsts`` to before its ``ends`` are what was written.

        Raises:
            Damaged: they are not.
        """
        if not self.left:
            return
        begins = firsts * self.item_bytes // BLOCK
        lasts = np.maximum(begins, (ends * self.item_bytes - 1) // BLOCK)
        blocks = np.unique(np.concatenate([begins, lasts]))
        blocks = blocks[blocks < len(self.sums)]  # where an empty text ends the file
        self._read(blocks[self.unread[blocks]])
        for begin, last in zip(begins[lasts > begins + 1], lasts[lasts > begins + 1], strict=True):
            self._read(begin + np.flatnonzero(self.unread[begin : last + 1]))

    def check_all(self) -> None:
        """All of the file; where that has been read already nothing is done."""
        self._read(np.flatnonzero(self.unread))

    def _read(self, blocks: np.ndarray) -> None:
        if not len(blocks):
            return
        with self.path.open("rb", buffering=0) as file:  # not through the map, whose pages would count as ours
            for block in blocks.tolist():
                file.seek(block * BLOCK)
                data = file.read(BLOCK)
                if zlib.crc32(data) != self.sums[block]:
                    begin = block * BLOCK
                    raise Damaged(f"{self.path.name} has changed between bytes {begin} and {begin + len(data)}")
                self.unread[block] = False
        self.left = int(self.unread.sum())
