"""An exported folder: what is one, and writing it in the place of an earlier one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts import InputError
from files.claims import strangers
from files.whole import whole_folder

MARKS = ("modules.json", "config.json", "model.onnx")  # an earlier export holds one of them


@contextmanager
def export_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into; it takes the place of ``folder`` when the block ends well.

    Raises:
        InputError: what is there is no export.
    """
    if (folder.exists() and not folder.is_dir()) or strangers(folder, MARKS):
        raise InputError(
            f"export: {folder} exists and is no exported folder; name a folder that does not exist, or remove this one."
        )
    with whole_folder(folder) as part:
        yield part
