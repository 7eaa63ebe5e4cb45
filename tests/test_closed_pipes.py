"""A command whose output is piped to ``head`` continues silently; the truth is the operating system's report."""

import os
import subprocess
import sys

import pytest

from tests.forks import ROOT

WORK = """
import sys
from contrastive_encoders.core.runtime.signals import install_signal_handlers
install_signal_handlers()
for number in range(5_000):
    print("ö" * 20, number, file=sys.{stream})
open("finished", "w").close()
"""


def run(arguments, cwd, stream="stdout"):
    """Run Python with a ``stream`` that has no reader; return the exit code and the output of the other stream."""
    reader, writer = os.pipe()
    os.close(reader)
    other = "stderr" if stream == "stdout" else "stdout"
    streams = {stream: writer, other: subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], **streams, cwd=cwd, env=environment, timeout=100, check=False)
    os.close(writer)
    return done.returncode, getattr(done, other)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_work_goes_on_without_a_reader(stream, tmp_path):
    assert run(["-c", WORK.format(stream=stream)], tmp_path, stream) == (0, b"")
    assert (tmp_path / "finished").exists()


def test_output_with_a_reader_is_complete(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(stream="stdout")],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        check=True,
    )
    assert done.stdout.decode().split("\n") == [*(f"{'ö' * 20} {number}" for number in range(5_000)), ""]


@pytest.mark.parametrize(
    "arguments",
    [["-m", "contrastive_encoders", "preview", "--help"], ["-m", "contrastive_encoders"], ["train.py", "--help"]],
    ids=str,
)
def test_help_without_a_reader(arguments):
    assert run(arguments, ROOT) == (0, b"")
