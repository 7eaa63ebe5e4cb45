"""Freed memory in glibc's malloc: its reuse in training, and the return of fragmented free memory to the system.

In glibc 2.36, an aligned allocation cannot use a free block of its own size (bug 14581). The heap then grows with each
chunk of a batch, with MiniLM by 0.2 GiB per 4,096 tokens, although the activations of only one chunk are in use.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from contrastive_encoders.core.runtime.kernel_files import read_number

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # malloc.h
REUSE = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1}  # no separate mappings; -1: free memory is never returned
# glibc's defaults; for the two thresholds, the maxima of their dynamic values
DEFAULTS = {M_MMAP_MAX: 65_536, M_TRIM_THRESHOLD: 2**26, M_MMAP_THRESHOLD: 2**25}
VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
TUNABLES = "glibc.malloc."
MAX_FREE = 2**31  # bytes of free resident memory; returning them more often costs page faults


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(  # malloc.h
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


@cache
def _glibc() -> Any:
    """Return the C library, or None if it is not glibc."""
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
        return None
    if hasattr(libc, "mallinfo2"):  # since glibc 2.33
        libc.mallinfo2.restype = _Mallinfo2
    return libc


def can_reuse_freed_memory() -> bool:
    """Return whether the C library is glibc, and the environment sets no thresholds of malloc."""
    is_set = TUNABLES in os.environ.get("GLIBC_TUNABLES", "") or any(name in os.environ for name in VARIABLES)
    return _glibc() is not None and not is_set


def reuse_freed_memory(enabled: bool) -> None:
    """Let malloc keep freed memory for later allocations; if not ``enabled``, return free memory to the system.

    By default, malloc creates a new mapping for each block of more than 32 MiB. The kernel clears all of its pages, on
    one thread, which can take longer than the computation if the activations of a batch take gigabytes. Reuse increases
    peak memory, because a free block is often too small for the next one.
    """
    libc = _glibc()
    for name, value in (REUSE if enabled else DEFAULTS).items():
        libc.mallopt(name, value)
    if not enabled:
        libc.malloc_trim(0)


def available_memory(root: Path = Path("/")) -> int:
    """Return the number of bytes that the processes of this machine, and of the control groups of this process, can
    still allocate; 0 if the system does not report it.
    """
    available = read_number(root / "proc/meminfo", "MemAvailable:")
    return 0 if available is None else max(0, min([1024 * available, *_available_in_groups(root)]))


def _available_in_groups(root: Path) -> Iterator[int]:
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for number, controllers, path in (line.split(":", 2) for line in groups if line.count(":") > 1):
        if number == "0":  # version 2
            mount, limit, used, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # ValueError: "max". The kernel can free the cache of files
                total, occupied = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
                yield total - occupied + (read_number(folder / "memory.stat", cache) or 0)
            if folder == mount:
                break


class FragmentedMemory:
    """Limit of the free heap memory of this process."""

    def __init__(self) -> None:
        self.other: int | None = None  # anonymous memory that malloc does not manage

    def limit(self, max_free: int = MAX_FREE) -> None:
        """Return free memory to the system if more than ``max_free`` bytes of it are resident."""
        libc = _glibc()
        if not hasattr(libc, "mallinfo2"):
            return
        if self.other is None:
            libc.malloc_trim(0)
            self.other = _unallocated(libc)
        elif _unallocated(libc) - self.other > max_free:
            libc.malloc_trim(0)
            if (left := _unallocated(libc) - self.other) > max_free // 2:
                self.other += left  # of other allocators, such as Python's


def _unallocated(libc: Any) -> int:
    """Return the number of bytes of anonymous resident memory that malloc has not allocated."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split())
    info = libc.mallinfo2()
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") - int(info.uordblks + info.hblkhd)


heap = FragmentedMemory()
