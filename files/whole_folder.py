"""A folder that appears whole or not at all; what was there before stays until then."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts import InputError

MARKS = ("modules.json", "config.json", "model.onnx")  # an earlier export holds one of them


@contextmanager
def replaced_whole(folder: Path) -> Iterator[Path]:
    """An empty sibling of ``folder`` to write into; it takes the folder's name when the block ends well.

    Raises:
        InputError: what is there is no export.
    """
    if folder.exists() and not is_export(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"export: {folder} exists and is no exported folder; name a folder that does not exist, or remove this one."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    replaced = folder.with_name(f".{folder.name}.{os.getpid()}.replaced")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
        if folder.exists():
            folder.rename(replaced)  # a rename onto a folder that is not empty fails
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def is_export(folder: Path) -> bool:
    return any((folder / name).is_file() for name in MARKS)
