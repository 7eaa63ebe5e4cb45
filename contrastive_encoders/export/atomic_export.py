"""Write an exported folder atomically, and replace an existing one only if it is an earlier export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contrastive_encoders.io.atomic import atomic_directory
from contrastive_encoders.io.output_directory import check_replaceable, write_marker

EXPORT = "export"  # kind of output


@contextmanager
def export_folder(folder: Path) -> Iterator[Path]:
    """Context manager that yields an empty folder, which replaces ``folder`` if the block ends without an error.

    Raises:
        InputError: the existing folder is not an export.
    """
    check_replaceable("output", folder, EXPORT)
    with atomic_directory(folder) as part:
        yield part
        write_marker(part, EXPORT, sorted(path.name for path in part.iterdir()))
