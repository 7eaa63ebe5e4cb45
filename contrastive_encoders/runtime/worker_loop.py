"""The loop of a worker: load once, then process tasks; the same in every kind of process."""

import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from contrastive_encoders.runtime.worker_tasks import WorkItem

Start = Callable[[], Any]
"""Loads what the work needs, once in each worker."""
Work = Callable[[Any, Iterator[WorkItem]], Iterator[tuple[int | None, Any]]]
"""Takes what ``Start`` returned, and tasks as it has room for them; yields (number, result) in any order. A number of
None is a report on what is under way, for a progress bar."""


class More(NamedTuple):
    """The worker can accept another task."""


class Result(NamedTuple):
    """The result of a task."""

    number: int | None
    value: Any


class Finished(NamedTuple):
    """The worker has returned the results of all tasks that it accepted, and gets no more."""


class Raised(NamedTuple):
    """The worker cannot continue because of an error."""

    error: Exception


Message = More | Result | Finished | Raised


def serve(start: Start, send: Callable[[Message], None], receive: Callable[[], Any]) -> None:
    """Receive work until None is received. For each work, request tasks and send their results."""

    def tasks() -> Iterator[WorkItem]:
        while True:
            send(More())
            if (task := receive()) is None:
                return
            yield task

    try:
        state = start()
        while (work := receive()) is not None:
            for number, value in work(state, tasks()):
                send(Result(number, value))
            send(Finished())
    except (EOFError, BrokenPipeError):  # the driver has exited
        return
    except Exception as error:  # noqa: BLE001  the driver raises it
        error.add_note(f"In a worker:\n{traceback.format_exc()}")
        send(Raised(error))
