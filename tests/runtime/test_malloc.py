"""`reuse_freed_memory`: page faults and resident memory as the kernel counts them."""

import ctypes
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_encoders.runtime.malloc import VARIABLES, can_reuse_freed_memory, total_memory
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs glibc"
)
PAGES = 64 * 2**20 // resource.getpagesize()

SCRIPT = """
import resource, torch
from contrastive_encoders.runtime.malloc import reuse_freed_memory

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1])

page_faults()
print(page_faults(), end=" ")
reuse_freed_memory(True)
print([page_faults() for _ in range(5)][-1], resident(), end=" ")
reuse_freed_memory(False)
print(resident(), page_faults())
"""


def test_blocks_of_64_mib_are_reused_and_returned():
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    before, within, kept, left, after = map(int, done.stdout.split())
    assert before >= PAGES  # each page of the block, as without this project
    assert within < PAGES // 100
    assert kept - left >= PAGES * 0.9
    assert after >= PAGES


def test_options_of_the_environment_stay(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert can_reuse_freed_memory()
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    assert not can_reuse_freed_memory()


def test_total_memory_is_the_limit_of_the_control_group(tmp_path):
    (tmp_path / "memory.max").write_text("1073741824\n")
    with_limit = total_memory(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    kib = int(re.search(r"MemTotal: +([0-9]+) kB", Path("/proc/meminfo").read_text())[1])
    assert with_limit == 2**30
    assert total_memory(tmp_path) == kib * 1024
