"""Return of free, fragmented heap memory to the system between the chunks of a batch, with glibc on CPUs.

In glibc 2.36, an aligned allocation cannot use a free block of its own size (bug 14581). The heap then grows with each
chunk of a batch, with MiniLM by 0.2 GiB per 4,096 tokens, although the activations of only one chunk are in use.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

MAX_FREE = 2**31  # bytes of free resident memory; returning them more often costs page faults


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(  # malloc.h
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


@cache
def _glibc() -> Any:
    """Return the C library, or None if it is not glibc 2.33 or later."""
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "mallinfo2"):
        return None
    libc.mallinfo2.restype = _Mallinfo2
    return libc


class FragmentedMemory:
    """Limit of the free heap memory of this process."""

    def __init__(self) -> None:
        self.other: int | None = None  # anonymous memory that malloc does not manage

    def limit(self, max_free: int = MAX_FREE) -> None:
        """Return free memory to the system if more than ``max_free`` bytes of it are resident."""
        if (libc := _glibc()) is None:
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
