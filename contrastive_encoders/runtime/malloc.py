"""Reuse of freed memory by glibc's malloc."""

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # malloc.h
REUSE = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1}  # no separate mappings; -1: free memory is never returned
# glibc's defaults; for the two thresholds, the maxima of their dynamic values
DEFAULTS = {M_MMAP_MAX: 65_536, M_TRIM_THRESHOLD: 2**26, M_MMAP_THRESHOLD: 2**25}
VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
TUNABLES = "glibc.malloc."


def can_reuse_freed_memory() -> bool:
    """Return whether the C library is glibc, and the environment sets no thresholds of malloc."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return False
    return TUNABLES not in os.environ.get("GLIBC_TUNABLES", "") and not any(name in os.environ for name in VARIABLES)


def reuse_freed_memory(enabled: bool) -> None:
    """Let malloc keep freed memory for later allocations; if not ``enabled``, return free memory to the system.

    By default, malloc creates a new mapping for each block of more than 32 MiB. The kernel clears all of its pages, on
    one thread, which can take longer than the computation if the activations of a batch take gigabytes. Reuse increases
    peak memory, because a free block is often too small for the next one.
    """
    libc = ctypes.CDLL(None)
    for name, value in (REUSE if enabled else DEFAULTS).items():
        libc.mallopt(name, value)
    if not enabled:
        libc.malloc_trim(0)


def available_memory(root: Path = Path("/")) -> int:
    """Return the number of bytes that the processes of this machine, and of the control groups of this process, can
    still allocate.
    """
    meminfo = (root / "proc/meminfo").read_text(encoding="ascii")
    [kib] = re.findall(r"^MemAvailable: +(\d+) kB", meminfo, re.MULTILINE)
    return max(0, min([1024 * int(kib), *_available_in_groups(root)]))


def _available_in_groups(root: Path) -> Iterator[int]:
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":  # version 2
            mount, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            mount, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
                yield int((folder / limit).read_text(encoding="ascii")) - int(
                    (folder / used).read_text(encoding="ascii")
                )
            if folder == mount:
                break
