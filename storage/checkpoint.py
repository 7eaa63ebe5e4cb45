"""Safe reading of checkpoints: complete, with the checksum that was written, and without executing anything.

The file is a zip, as torch writes it: each of its entries has a sum, which torch itself does not compare.
"""

import functools
import pickle
import textwrap
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from storage.manifest import Damaged

UNREADABLE = (RuntimeError, OSError, EOFError, KeyError, ValueError, zlib.error, zipfile.BadZipFile)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Its entries, tensors mapped from the file.

    Raises:
        Damaged: it is cut short, a byte of it has changed, it is something else, or it holds what could run code.
        FileNotFoundError: it is not there.
    """
    path = Path(path)
    about = path.stat()
    try:
        _compare(path, about.st_size, about.st_mtime_ns)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise Damaged("it holds objects that could run code, and such are never loaded") from error
    except UNREADABLE as error:
        why = textwrap.shorten(str(error), 160, placeholder=" ...") or type(error).__name__
        raise Damaged(f"cut short or damaged: {why}") from error
    if not isinstance(found, dict):
        raise Damaged(f"wanted entries by name, got {type(found).__name__}")
    return found


@functools.lru_cache(maxsize=64)  # a command looks at one several times
def _compare(path: Path, size: int, changed: int) -> None:
    with zipfile.ZipFile(path) as archive:
        if entry := archive.testzip():
            raise ValueError(f"{entry} has changed since it was written")
