"""Processes that a test starts to work together: if one fails, the others wait for it in vain."""

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.process import BaseProcess

Child = subprocess.Popen[bytes] | BaseProcess


def statuses(children: Sequence[Child], timeout: float = 200) -> list[int]:
    """Return the exit codes of all; the first that is not 0, or the timeout, kills those that still run."""
    with ThreadPoolExecutor(len(children)) as threads:
        ends = [threads.submit(_status, child) for child in children]
        try:
            for end in as_completed(ends, timeout):
                if end.result() != 0:
                    break
        except TimeoutError:
            pass
        finally:
            for child in children:
                child.kill()  # which an ended process does not receive
    return [end.result() for end in ends]


def _status(child: Child) -> int:
    if isinstance(child, subprocess.Popen):
        return child.wait()
    child.join()
    assert child.exitcode is not None
    return child.exitcode
