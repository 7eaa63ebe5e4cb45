"""Running a toy in a process of its own, so that it may be killed."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # toy.py is imported by the tests and started as a script


@pytest.fixture
def in_child() -> Callable[..., int]:
    """Call a function in a forked process (which has imported everything already) and give its exit status."""

    def run(function: Callable, *arguments: object, **named: object) -> int:
        child = multiprocessing.get_context("fork").Process(target=_quietly, args=(function, arguments, named))
        child.start()
        child.join(60)
        assert not child.is_alive(), "the child hangs"
        return child.exitcode

    return run


def _quietly(function: Callable, arguments: tuple, named: dict) -> None:
    gc.freeze()  # what the tests' process holds need not be looked through again and again
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    status = function(*arguments, **named)
    sys.exit(status if isinstance(status, int) else 0)
