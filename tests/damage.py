"""Damage as a disk does it."""

from pathlib import Path


def flip(path: Path, at: float = 0.5, count: int = 1) -> None:
    """Turn the bits of ``count`` bytes around, from this share of the file on."""
    content = bytearray(path.read_bytes())
    place = int(at * (len(content) - 1))
    content[place : place + count] = bytes(255 - one for one in content[place : place + count])
    path.write_bytes(content)
