"""Run a toy in a separate process, so that it may be killed."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests import toy.py, and also start it as a script


@pytest.fixture
def in_child() -> Callable[..., int]:
    """Call a function in a forked process (which has imported everything already) and return its exit code."""

    def run(function: Callable, *arguments: object, **named: object) -> int:
        child = multiprocessing.get_context("fork").Process(target=_quietly, args=(function, arguments, named))
        child.start()
        child.join(60)
        assert not child.is_alive(), "the child hangs"
        return child.exitcode

    return run


def _quietly(function: Callable, arguments: tuple, named: dict) -> None:
    gc.freeze()  # the collector need not scan the objects of the tests' process repeatedly
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    status = function(*arguments, **named)
    sys.exit(status if isinstance(status, int) else 0)
