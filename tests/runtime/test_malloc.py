"""`reuse_freed_memory`: page faults and resident memory as the kernel counts them."""

import ctypes
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from contrastive_encoders.core.runtime.malloc import (
    VARIABLES,
    available_memory,
    can_reuse_freed_memory,
    reuse_freed_memory,
)
from tests.conftest import ROOT

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    or (HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text()),
    reason="needs glibc, and pages of the usual size",
)
PAGES = 64 * 2**20 // resource.getpagesize()

SCRIPT = "from tests.runtime.test_malloc import measure; print(*measure())"


def page_faults(mib=64):
    """Return the page faults of the allocation of a tensor of this size."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(mib * 2**18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])


def measure():
    page_faults()
    before = page_faults()
    reuse_freed_memory(True)
    reused = min(page_faults() for _ in range(40)), min(page_faults(2304) for _ in range(4)), resident()
    reuse_freed_memory(False)
    return before, *reused, resident(), page_faults()


def test_blocks_are_reused_and_returned():
    clean = {name: value for name, value in os.environ.items() if name not in {*VARIABLES, "GLIBC_TUNABLES"}}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    before, within, within_large, kept, left, after = map(int, done.stdout.split())
    assert before >= PAGES  # each page of the block, as without this project
    # the minimum, because a free block can be too small for the next one due to its alignment
    assert within < PAGES // 100
    assert within_large < PAGES // 100  # more than 2 GiB
    assert kept - left >= PAGES * 0.9
    assert after >= PAGES


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, "131072", False) for name in VARIABLES),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", False),
        ("GLIBC_TUNABLES", "glibc.pthread.rseq=0", True),
        ("MALLOC_ARENA_MAX", "2", True),
    ],
)
def test_thresholds_of_the_environment_stay(name, value, expected, monkeypatch):
    for one in (*VARIABLES, "GLIBC_TUNABLES"):
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, value)
    assert can_reuse_freed_memory() is expected


def write(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


MEMINFO = {"proc/meminfo": "MemTotal:       9000 kB\nMemFree:         100 kB\nMemAvailable:    5000 kB"}
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
LIMITED = {f"{V2}/a/memory.max": 4000, f"{V2}/a/memory.current": 700}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/"}, 5000 * 1024),
        ({"proc/self/cgroup": "0::/a/b", f"{V2}/a/b/memory.max": "max", f"{V2}/a/b/memory.current": 7}, 5000 * 1024),
        ({"proc/self/cgroup": "0::/a/b", f"{V2}/a/b/memory.max": 4000, f"{V2}/a/b/memory.current": 700}, 3300),
        ({"proc/self/cgroup": "0::/a/b", **LIMITED}, 3300),
        ({"proc/self/cgroup": "0::/", f"{V2}/memory.max": 400, f"{V2}/memory.current": 700}, 0),
        (
            {
                "proc/self/cgroup": "9:cpu:/\n5:memory:/job",
                f"{V1}/job/memory.limit_in_bytes": 4000,
                f"{V1}/job/memory.usage_in_bytes": 1000,
            },
            3000,
        ),
        ({"proc/self/cgroup": "0::/a", **LIMITED, f"{V2}/a/memory.stat": "anon 9\ninactive_file 500"}, 3800),
        ({"proc/self/cgroup": "0::/a", **LIMITED, f"{V2}/a/memory.stat": "anon 9"}, 3300),
        ({}, 5000 * 1024),
        ({"proc/self/cgroup": "memory"}, 5000 * 1024),
        ({"proc/meminfo": "MemTotal: 9000 kB\nMemFree: 100 kB", "proc/self/cgroup": "0::/"}, 0),
    ],
)
def test_available_memory_is_limited_by_the_control_groups(files, expected, tmp_path):
    assert available_memory(write(tmp_path, MEMINFO | files)) == expected


def test_available_memory_of_this_machine():
    total = int(re.search(r"MemTotal: +([0-9]+) kB", Path("/proc/meminfo").read_text())[1]) * 1024
    assert 0 < available_memory() < total
