"""Damage as a disk causes it."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


def flip(path: Path, at: float = 0.5, count: int = 1) -> None:
    """Flip the bits of ``count`` bytes, starting at this share of the file."""
    content = bytearray(path.read_bytes())
    place = int(at * (len(content) - 1))
    content[place : place + count] = bytes(255 - one for one in content[place : place + count])
    path.write_bytes(content)


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Context manager that limits the size of files of this process and its children; printed output is shorter."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
