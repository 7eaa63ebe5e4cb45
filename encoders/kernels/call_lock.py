"""Lock of a model whose layers are replaced while it is called."""

import os
import threading
from typing import Any


class CallLock:
    """Context manager that executes the calls of several threads one after the other.

    A thread may enter it several times. A copy of the model has a lock of its own, and so has a forked process, in
    which the thread that holds the lock does not exist.
    """

    def __init__(self) -> None:
        self.lock, self.process = threading.RLock(), os.getpid()

    def __enter__(self) -> None:
        if self.process != os.getpid():
            self.lock, self.process = threading.RLock(), os.getpid()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return CallLock, ()
