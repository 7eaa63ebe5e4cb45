"""Write an exported folder as a whole, and replace an existing one only if it is an earlier export."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contrastive_encoders.io.atomic import atomic_directory
from contrastive_encoders.io.output_directory import check_replaceable, write_marker

EXPORT = "export"  # kind of output


@contextmanager
def export_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write into; it takes the place of ``folder`` when the block ends well.

    Raises:
        InputError: what is there is no export.
    """
    check_replaceable("output", folder, EXPORT)
    with atomic_directory(folder) as part:
        yield part
        write_marker(part, EXPORT, sorted(path.name for path in part.iterdir()))
