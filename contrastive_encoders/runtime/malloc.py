"""Reuse of freed memory by glibc's malloc."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
MAX_THRESHOLD = 2**31 - 1
DEFAULT_THRESHOLDS = {M_MMAP_THRESHOLD: 2**25, M_TRIM_THRESHOLD: 2**26}  # the maxima of glibc's dynamic thresholds
VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # versions 2 and 1


def can_reuse_freed_memory() -> bool:
    """Return whether the C library is glibc, and the environment sets no options of malloc."""
    is_glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    return is_glibc and not any(name in os.environ for name in VARIABLES)


def reuse_freed_memory(enabled: bool) -> None:
    """Let malloc keep freed memory for later allocations; if not ``enabled``, return free memory to the system.

    By default, malloc maps each block of more than 32 MiB anew. The kernel then clears all of its pages again, on one
    thread, which can take longer than the computation if the activations of a batch take gigabytes. Reuse increases
    peak memory, because a free block is often too small for the next one.
    """
    libc = ctypes.CDLL(None)
    for name, default in DEFAULT_THRESHOLDS.items():
        libc.mallopt(name, MAX_THRESHOLD if enabled else default)
    if not enabled:
        libc.malloc_trim(0)


def total_memory(control_groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of this machine in bytes, or the limit of the control group if it is lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
            limits.append(int((control_groups / name).read_text(encoding="ascii")))
    return min(limits)
