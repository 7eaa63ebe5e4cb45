"""The loop that each worker runs: it loads a model once and then processes tasks. It is the same for local processes
and Ray actors.
"""

import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from contrastive_encoders.core.runtime.worker_tasks import WorkItem

Start = Callable[[], Any]
"""Function that loads the model or other data for the work, once in each worker."""
Work = Callable[[Any, Iterator[WorkItem]], Iterator[tuple[int | None, Any]]]
"""Function from the object that ``Start`` returned and an iterator of tasks, which it advances when it can accept
another task, to (number, result) of the tasks in any order. If the number is None, the result is a progress report."""


class More(NamedTuple):
    """Message that the worker can accept another task."""


class Result(NamedTuple):
    """Message with the result of a task."""

    number: int | None
    value: Any


class Finished(NamedTuple):
    """Message that the worker has returned the results of all accepted tasks, and accepts no more tasks of the current
    work function.
    """


class Raised(NamedTuple):
    """Message that the worker has raised an error and cannot continue."""

    error: Exception


Message = More | Result | Finished | Raised


def serve(start: Start, send: Callable[[Message], None], receive: Callable[[], Any]) -> None:
    """Run the loop of a worker: receive work functions (`Work`) and call each, until None is received. Each function
    requests tasks and sends their results.
    """

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
