"""The kernel never materializes a matrix of rows x candidates. Measured in a separate process, on Linux."""

import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import sys, torch
from pathlib import Path
from contrastive_encoders.losses.contrastive import nt_xent

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

def step(pairs, width):
    views = [torch.randn(pairs, width, requires_grad=True) for _ in range(2)]
    before = peak()
    nt_xent(*views, temperature=0.05).loss.backward()
    return peak() - before

step(8, 8)
print(step(int(sys.argv[1]), int(sys.argv[2])))
"""

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc/self/status")


def growth(pairs: int, width: int) -> int:
    command = [sys.executable, "-c", MEASURE, str(pairs), str(width)]
    return int(subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout)


@linux
def test_narrow_rows_need_a_fraction_of_the_logits():
    """The embeddings are narrow, so that logits dominate the memory."""
    logits = (2 * 4096) ** 2 * 4
    assert growth(4096, 8) < logits / 2


@linux
@pytest.mark.slow
def test_8192_pairs_of_width_768_fit_in_1_gb():
    embeddings = 2 * 8192 * 768 * 4
    # the gradients of the embeddings alone are as large as the embeddings: less would mean that nothing was measured
    assert embeddings < growth(8192, 768) < 1e9
