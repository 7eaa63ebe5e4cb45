"""The processor of this machine."""

import functools
from pathlib import Path


@functools.cache
def cpu_field(name: str) -> str | None:
    """Return the first value of a field of ``/proc/cpuinfo``, such as "model name", or None if there is none."""
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return None
