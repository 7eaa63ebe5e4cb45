"""Numbers in files of the Linux kernel, such as /proc/meminfo."""

import contextlib
import re
from pathlib import Path


def read_number(path: Path, name: str) -> int | None:
    """Return the first number of the line that begins with a name; None if the file or the line does not exist."""
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{name}\s+(\d+)".encode(), path.read_bytes(), re.MULTILINE):
            return int(found[1])
    return None
